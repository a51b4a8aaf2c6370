"""Things that hold things: the basket."""

import functools
import math

from sim_envs.libero.standins.model import Body, Look, Model, Picture, Region, block, drawn, panel
from sim_envs.libero.standins.paint import weave

_BASKET = [
    block((-0.0745, -0.0724, 0.0042), (0.0790, 0.0724, 0.0219)),
    panel((0.0787, 0.0134), (0.0851, 0.1404), width=0.0724, thickness=0.0133, yaw=0.0),
    panel((0.0740, 0.0132), (0.0838, 0.1404), width=0.0724, thickness=0.0133, yaw=math.pi),
    panel((0.0728, 0.0185), (0.0785, 0.1455), width=0.0725, thickness=0.0133, yaw=math.pi / 2),
    panel((0.0728, 0.0185), (0.0785, 0.1455), width=0.0725, thickness=0.0133, yaw=-math.pi / 2),
]

VESSELS = (
    Model(
        category="basket",
        path="stable_scanned_objects/basket/basket.xml",
        body=Body(
            name="object",
            mass=0.1361,
            solids=_BASKET,
            regions=[
                Region(
                    name="contain_region",
                    pos=(0.0, 0.0, 0.07185),
                    half=(0.06108, 0.06108, 0.06949),
                    quat=(0.0, 0.0, 0.0, 1.0),
                )
            ],
            looks=[
                Look(
                    mesh=drawn(_BASKET),
                    skin=Picture(name="weave", paint=functools.partial(weave, (184, 134, 82), (128, 86, 48))),
                )
            ],
        ),
    ),
)
