"""Trainers with the flags, and the logs, of Caffe2's and DJL's."""
