"""Training commands with the flags and logs of Caffe2 and DJL."""
