"""Values put into words for people and into JSON for programs: once, for the command line and the web alike."""
