"""Upload a model folder to the Hugging Face hub, where timm can load it."""

from __future__ import annotations

from pathlib import Path

from pmtrans.errors import ModelError, one_line


def push_model(folder: Path, repo: str, private: bool = True, endpoint: str | None = None) -> str:
    """Upload ``folder`` to ``ORG/NAME``, created if missing; returns its URL.

    Authentication is the hub client's (``hf auth login``).
    """
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = huggingface_hub.HfApi(endpoint=endpoint)
    destination = f"{one_line(repo)} on {one_line(api.endpoint)}"
    try:
        url = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Model exported by pmtrans")
    except HFValidationError as error:
        raise ModelError(f"{one_line(repo)!r} is not a valid repository name: {one_line(error, 150)}") from None
    except HfHubHTTPError as error:
        hint = " Log in with `hf auth login`." if getattr(error.response, "status_code", None) in (401, 403) else ""
        reason = one_line(str(error).splitlines()[0], 150)
        raise ModelError(f"{destination} refused the model: {reason}.{hint}") from None
    except Exception as error:  # network errors have many types, which differ between versions of the client
        reason = one_line(str(error) or type(error).__name__, 150)
        raise ModelError(f"{destination} cannot be reached: {reason}") from None
    return str(url)
