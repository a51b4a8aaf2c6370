"""Pages of reports and leaderboards: templates, styles and scripts, and the data that fills them."""
