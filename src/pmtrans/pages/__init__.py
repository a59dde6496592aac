"""Pages that people open in a browser: the report, its comparison, the worksheet of ``label-these``."""
