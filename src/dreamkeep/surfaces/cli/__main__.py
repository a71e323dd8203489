import sys

from dreamkeep.surfaces.cli import main

sys.exit(main())
