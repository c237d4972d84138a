"""SHA-256 of many large files."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

Progress = Callable[[int, int], None]
"""Called with the bytes done so far and the bytes in all, never from two threads at once."""

_BUFFER_BYTES = 4 << 20
_THREADS = 2


class _Counter:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._done = 0
        self._progress = progress
        self._lock = Lock()
        self.cancelled = False

    def add(self, count: int) -> None:
        if self._progress is None:
            return
        with self._lock:
            self._done += count
            self._progress(self._done, self._total)


def hash_files(paths: Sequence[Path], progress: Progress | None = None) -> list[str]:
    """Return the hex SHA-256 of each file, in order.

    Raises:
        OSError: a file cannot be read.
    """
    counter = _Counter(sum(path.stat().st_size for path in paths), progress)
    with ThreadPoolExecutor(_THREADS) as pool:
        # hashlib releases the interpreter lock, so threads are enough.
        futures = [pool.submit(_hash_file, path, counter) for path in paths]
        try:
            return [future.result() for future in futures]
        except BaseException:
            # An interrupted build must not wait until a 50 GB file is hashed.
            counter.cancelled = True
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _hash_file(path: Path, counter: _Counter) -> str:
    digest = hashlib.sha256()
    buffer = bytearray(_BUFFER_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while not counter.cancelled and (count := file.readinto(buffer)):
            digest.update(view[:count])
            counter.add(count)
    return digest.hexdigest()
