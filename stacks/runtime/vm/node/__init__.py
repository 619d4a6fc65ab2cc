"""What a machine runs by itself: an agent that gives it back, and the work it was bought for.

It is shipped to the machine as it stands here and needs Python 3.10 and its standard library.
"""
