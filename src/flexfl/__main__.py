"""`python -m flexfl`: the command line, also where the command `flexfl` is not on the path."""

from flexfl.cli.main import main

if __name__ == "__main__":
    main()
