"""Simulated worlds: environments, tasks, assets and scripted experts. Independent of any policy model.

Importing the package registers its Gymnasium environments, without loading a simulator.
"""

from sim_envs.registration import register

register()
