"""The policy: observations in, actions and texts out, for one robot or several."""
