"""Worlds: simulators as environments, their tasks, assets and scripted experts. Knows no policy model.

Importing the package registers its Gymnasium environments, without loading a simulator.
"""

from sim_envs.registration import register

register()
