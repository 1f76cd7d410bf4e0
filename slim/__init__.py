"""Data sets, preprocessing, nets and their converters."""
