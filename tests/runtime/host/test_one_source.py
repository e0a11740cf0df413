"""One source, two platforms: what device headers may contain, and that CUDA takes them."""
import ctypes
import glob
import os
import re
import shutil
import subprocess

import pytest

HEADERS = sorted(glob.glob("codegen/device/*.cuh"))
KERNEL = "tests/runtime/host/producer_consumer.cu"
MACHINE_WORDS = [
    r"\basm\b", r"__shfl", r"__ballot", r"__syncthreads", r"__syncwarp", r"\bthreadIdx\b",
    r"\bblockIdx\b", r"\batomic\w*", r"__shared__", r"__launch_bounds__", r"__grid_constant__",
    r"__global__", r"\bmma\.sync\b", r"#include <",
]


def code_of(path):
    """The file without comments."""
    text = open(path).read()
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def violations(name, text):
    if name in ("platform_cuda.cuh", "platform_cuda_mma.cuh"):
        return []
    words = MACHINE_WORDS[:-1] if name == "platform_host.cuh" else MACHINE_WORDS
    return [w for w in words if re.search(w, text)]


def test_headers_are_found():
    assert {"platform.cuh", "platform_cuda.cuh", "platform_host.cuh", "types.cuh"} <= {
        os.path.basename(h) for h in HEADERS}


@pytest.mark.parametrize("path", HEADERS)
def test_only_the_cuda_platform_knows_the_machine(path):
    found = violations(os.path.basename(path), code_of(path))
    assert not found, f"{path}: {found} belong into codegen/device/platform_cuda*.cuh"


def test_the_lint_sees_each_word():
    assert violations("ring.cuh", 'asm volatile("x");') == [r"\basm\b"]
    assert violations("ring.cuh", "int i = threadIdx.x; atomicAdd(p, 1);") == [
        r"\bthreadIdx\b", r"\batomic\w*"]
    assert violations("ring.cuh", "#include <math.h>") == ["#include <"]
    assert violations("ring.cuh", "int assemble = 1;") == []


@pytest.mark.parametrize("path", HEADERS + [KERNEL])
def test_platforms_are_included_through_platform_cuh(path):
    name = os.path.basename(path)
    included = re.findall(r'#include "([^"]+)"', code_of(path))
    assert all("/" in i for i in included), "include by path from the root"
    if name != "platform.cuh":
        assert not [i for i in included if re.search(r"platform_(cuda|host)", i)]


def nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


@pytest.mark.skipif(not nvcc(), reason="no nvcc")
@pytest.mark.parametrize("arch", ["90a", "100a"])
def test_nvcc_compiles_the_kernel(arch, tmp_path):
    ptx = tmp_path / "kernel.ptx"
    subprocess.run([nvcc(), "-std=c++20", "-fmad=false", "-I.", "-ptx", "-Werror=all-warnings",
                    f"-gencode=arch=compute_{arch},code=compute_{arch}", "-o", ptx, KERNEL],
                   check=True)
    marks = re.findall(r"// megalith (\w+) @(\w+) ([\w.]+)", ptx.read_text())
    assert {("wait", "full", "acquire.cta"), ("wait", "part", "acquire.cta"),
            ("wait", "words", "relaxed.gpu"), ("signal", "words", "relaxed.gpu")} <= set(marks)


def nvrtc():
    for name in ["libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.13"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None


@pytest.mark.skipif(nvrtc() is None, reason="no NVRTC 13")
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_nvrtc_needs_no_include_folder(arch):
    lib = nvrtc()
    files = ["runtime/abi.h"] + [h for h in HEADERS if re.search(r"/(platform(_cuda\w*)?|root_steps|types)\.cuh$", h)]
    names = (ctypes.c_char_p * len(files))(*[f.encode() for f in files])
    texts = (ctypes.c_char_p * len(files))(*[open(f, "rb").read() for f in files])
    program = ctypes.c_void_p()
    assert lib.nvrtcCreateProgram(ctypes.byref(program), open(KERNEL, "rb").read(), b"kernel.cu",
                                  len(files), texts, names) == 0
    options = [b"--std=c++20", b"--gpu-architecture=" + arch.encode(), b"-fmad=false"]
    rc = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    assert rc == 0, log.value.decode()
