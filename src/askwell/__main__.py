"""`python -m askwell` is `askwell`."""

from askwell.cli.main import main

main()
