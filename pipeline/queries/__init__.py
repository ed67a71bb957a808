"""Questions as values: their arithmetic, how assignments are decoded and beliefs added up."""
