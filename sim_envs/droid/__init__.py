"""DROID's station in MuJoCo: a Panda with a Robotiq 2F-85, two cameras, and tasks from YAML files."""
