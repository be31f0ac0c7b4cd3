"""Functions of `paddle.v2.dataset` (2017): `dataset`, `download`, `uci_housing`, and `pickles`.

New programs use `data/recordio` and the readers of `paddlecloud.data`.
"""
