"""GEM's interface to Palestra's environments: `import palestra.compat.gem as gem`.

The modules have the same paths as GEM's, for example `palestra.compat.gem.tools.python_code_tool`. `install()` also
makes them available as `gem`, so that scripts written for GEM run unchanged:

    import palestra.compat.gem
    palestra.compat.gem.install()
    import gem
"""

from palestra.compat.gem.base import Env
from palestra.compat.gem.modules import add_modules, install
from palestra.compat.gem.registration import make, make_vec, print_envs, register

__all__ = ["Env", "install", "make", "make_vec", "print_envs", "register"]

add_modules()
