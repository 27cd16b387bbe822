"""`python -m proxy` is `lethe`."""

from proxy.cli import main

if __name__ == "__main__":
    main()
