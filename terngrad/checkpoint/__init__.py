"""What a run stores, resumes from and takes over from elsewhere."""
