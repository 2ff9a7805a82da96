"""Memory for the KV pages: on a GPU, an address range that is backed by physical memory only as far as it is used.

CUDA graphs contain addresses, so the cache must not move. The driver's virtual memory functions map physical memory
into a reserved address range: the cache grows on demand and is released while the learner needs the memory.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from palestra.engines.local.paged.layout import PAGE, Heads

CHUNK_BYTES = 1 << 29  # physical memory is mapped in pieces of about this size


class KVMemory:
    """Keys and values for up to `pages` pages. `grow` must be called before a page is used."""

    def __init__(self, device: torch.device, dtype: torch.dtype, *, layers: int, heads: Heads, pages: int) -> None:
        self.device = device
        self.pages = pages
        self.mapped_pages = 0  # pages that are backed by memory
        shape = (pages, layers, 2, heads.kv, PAGE, heads.dim)
        self.page_bytes = page_bytes(dtype, layers=layers, heads=heads)
        self._range: _AddressRange | None = None
        if device.type == "cuda":
            self._range = _AddressRange(device, pages * self.page_bytes)
            self.grow(1)
            flat = torch.as_tensor(self._range, device=device)[: math.prod(shape) * dtype.itemsize]
            self._cache = flat.view(dtype).view(shape)
        else:
            # The operating system allocates memory only when it is written.
            self._cache = torch.empty(shape, dtype=dtype, device=device)
            self.mapped_pages = pages

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values, each with the shape (page, kv head, token in page, dim)."""
        return self._cache[:, index, 0], self._cache[:, index, 1]

    def grow(self, pages: int) -> bool:
        """Back at least the first `pages` pages with memory. Return False if the device has too little memory."""
        if pages <= self.mapped_pages or self._range is None:
            return True
        wanted = min(pages * self.page_bytes, self._range.size)
        while self._range.mapped < wanted:
            if not self._range.map(CHUNK_BYTES):
                torch.cuda.empty_cache()  # frees memory that torch has cached
                if not self._range.map(CHUNK_BYTES):
                    break
        self.mapped_pages = min(self.pages, self._range.mapped // self.page_bytes)
        return pages <= self.mapped_pages

    def release(self) -> None:
        """Release all device memory except the first chunk, which holds the page for padding."""
        if self._range is not None and self._range.mapped:
            torch.cuda.synchronize(self.device)
            self._range.unmap(keep=1)
            self.mapped_pages = min(self.pages, self._range.mapped // self.page_bytes)

    def close(self) -> None:
        """Release all device memory. Nothing may use the cache afterwards."""
        if self._range is not None:
            torch.cuda.synchronize(self.device)
            self._range.unmap(keep=0)
            self.mapped_pages = 0


def page_bytes(dtype: torch.dtype, *, layers: int, heads: Heads) -> int:
    return layers * 2 * heads.kv * PAGE * heads.dim * dtype.itemsize


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocationProperties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32_metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _AccessDescription(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class _AddressRange:
    """A reserved range of device addresses. Torch reads it through `__cuda_array_interface__`."""

    def __init__(self, device: torch.device, size: int) -> None:
        torch.zeros(1, device=device)  # creates the CUDA context
        index = device.index if device.index is not None else torch.cuda.current_device()
        location = _Location(1, index)  # CU_MEM_LOCATION_TYPE_DEVICE
        self._properties = _AllocationProperties(type=1, location=location)  # CU_MEM_ALLOCATION_TYPE_PINNED
        self._access = _AccessDescription(location, 3)  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        granularity = ctypes.c_size_t()
        _call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(self._properties), 0)
        self._granularity = granularity.value
        self.size = self._rounded(size)
        self.mapped = 0  # bytes
        self._chunks: list[tuple[int, int, int]] = []  # address, size, handle
        address = ctypes.c_uint64()
        _call("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(self.size), ctypes.c_size_t(0),
              ctypes.c_uint64(0), ctypes.c_uint64(0))  # fmt: skip
        self._address = address.value
        self.__cuda_array_interface__ = {
            "shape": (self.size,), "typestr": "|u1", "data": (self._address, False), "version": 3, "strides": None,
        }  # fmt: skip

    def map(self, size: int) -> bool:
        """Back the next `size` bytes with memory. Return False if the device has too little memory."""
        size = min(self._rounded(size), self.size - self.mapped)
        handle = ctypes.c_uint64()
        if _driver().cuMemCreate(
            ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(self._properties), ctypes.c_uint64(0)
        ):
            return False
        address = self._address + self.mapped
        _call("cuMemMap", ctypes.c_uint64(address), ctypes.c_size_t(size), ctypes.c_size_t(0), handle,
              ctypes.c_uint64(0))  # fmt: skip
        _call("cuMemSetAccess", ctypes.c_uint64(address), ctypes.c_size_t(size), ctypes.byref(self._access),
              ctypes.c_size_t(1))  # fmt: skip
        self._chunks.append((address, size, handle.value))
        self.mapped += size
        return True

    def unmap(self, *, keep: int) -> None:
        """Release the memory of all chunks except the first `keep`."""
        while len(self._chunks) > keep:
            address, size, handle = self._chunks.pop()
            _call("cuMemUnmap", ctypes.c_uint64(address), ctypes.c_size_t(size))
            _call("cuMemRelease", ctypes.c_uint64(handle))
            self.mapped -= size

    def _rounded(self, size: int) -> int:
        return -(-size // self._granularity) * self._granularity


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(_driver(), name)(*arguments)
    if status:
        raise RuntimeError(f"{name} failed with CUDA error {status}")
