"""``python -m pmtrans``, as torchrun starts it."""

from pmtrans.cli import main

if __name__ == "__main__":
    main()
