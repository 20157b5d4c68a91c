"""Makes PyPI's torch for Linux importable without the CUDA libraries, for tests on a machine without a GPU.

The wheel is linked against about 3 GB of NVIDIA libraries that only a GPU needs, and PyPI has no smaller one. This writes
empty libraries in their place: each defines the symbols that torch asks of it, and a call of one of them aborts. Run it with
the interpreter of an environment that nothing else uses, after `pip install --no-deps torch nvidia-cuda-runtime`.
Needs readelf and cc. On other systems there is nothing to do: their wheels are for the CPU.
"""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ABSENT = re.compile(r"lib(cu(pti|sparse|sparseLt|fft|file|blas|blasLt|dnn)|nvrtc|nccl|nvshmem_host)\.so")
LIBRARIES = ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_nvshmem.so", "libtorch_python.so")


def readelf(option: str, file: Path) -> str:
    return subprocess.run(["readelf", "-W", option, str(file)], check=True, capture_output=True, text=True).stdout


def needed(file: Path) -> list[str]:
    return re.findall(r"NEEDED.*\[(.+)\]", readelf("-d", file))


def undefined(file: Path) -> list[tuple[str, str]]:
    """Symbols that a library looks for elsewhere, with the version that it asks for."""
    rows = (line.split() for line in readelf("--dyn-syms", file).splitlines())
    names = [row[7] for row in rows if len(row) > 7 and row[6] == "UND" and row[4] == "GLOBAL"]
    return [(name.split("@")[0], name.partition("@")[2].lstrip("@")) for name in names]


def stub(folder: Path, library: str, symbols: set[str], version: str) -> None:
    code = "void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in sorted(symbols))
    script = folder / "stub.map"
    script.write_text(f"{version} {{ global: *; }};\n" if version else "{ global: *; };\n")
    linker = [f"-Wl,-soname,{library}", f"-Wl,--version-script={script}"]
    command = ["cc", "-w", "-shared", "-fPIC", "-fno-builtin", "-x", "c", "-", *linker, "-o", str(folder / library)]
    subprocess.run(command, input=code, text=True, check=True)
    script.unlink()


def main() -> None:
    folder = Path(sysconfig.get_path("purelib")) / "torch" / "lib"
    if not sys.platform.startswith("linux") or not (folder / "libtorch_cuda.so").exists():
        return
    libraries = [folder / name for name in LIBRARIES if (folder / name).exists()]
    absent = {name for library in libraries for name in needed(library) if ABSENT.match(name)}
    wanted = [symbol for library in libraries for symbol in undefined(library)]
    for name in sorted(absent):
        stem = name.removeprefix("lib").split(".so")[0]
        version = "NVSHMEM" if "nvshmem" in name else name
        versioned = {symbol for symbol, of in wanted if of == version}
        plain = {symbol for symbol, of in wanted if not of and symbol.lower().startswith(stem.lower())}
        stub(folder, name, versioned or plain, version if versioned else "")


if __name__ == "__main__":
    main()
