"""A model folder on a model hub, where anybody's timm can open it."""

from __future__ import annotations

from pathlib import Path

from pmtrans.errors import ModelError, one_line


def push_model(folder: Path, repo: str, private: bool = True, endpoint: str | None = None) -> str:
    """Upload ``folder`` to ``ORG/NAME``, made if it is not there; returns its address.

    Who you are is the hub client's affair (``hf auth login``).
    """
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = huggingface_hub.HfApi(endpoint=endpoint)
    shown = f"{one_line(repo)} on {one_line(api.endpoint)}"
    try:
        address = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Model exported by pmtrans")
    except HFValidationError as error:
        raise ModelError(f"{one_line(repo)!r} is no name for a repository: {one_line(error, 150)}") from None
    except HfHubHTTPError as error:
        hint = " Log in with `hf auth login`." if getattr(error.response, "status_code", None) in (401, 403) else ""
        raise ModelError(f"{shown} refused the model: {one_line(str(error).splitlines()[0], 150)}.{hint}") from None
    except Exception as error:  # the network fails in many types, which differ between versions of the client
        raise ModelError(f"{shown} cannot be reached: {one_line(str(error) or type(error).__name__, 150)}") from None
    return str(address)
