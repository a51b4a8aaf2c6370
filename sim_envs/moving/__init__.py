"""Things that move by themselves until they are touched, on any MuJoCo model."""
