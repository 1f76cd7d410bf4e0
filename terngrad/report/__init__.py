"""Reports on runs: tables, plots and pages for people, files for programs."""
