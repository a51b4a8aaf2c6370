"""Stand-ins for LIBERO's assets: shapes made by code, of the same sizes, masses, joints and regions.

`build()` writes a complete asset tree into a cache folder and returns it; nothing is downloaded.
"""

from sim_envs.libero.standins.catalogue import missing_for
from sim_envs.libero.standins.tree import DIGEST, build

__all__ = ["DIGEST", "build", "missing_for"]
