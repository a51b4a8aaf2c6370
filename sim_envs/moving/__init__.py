"""Objects that move until they are touched, on any MuJoCo model."""
