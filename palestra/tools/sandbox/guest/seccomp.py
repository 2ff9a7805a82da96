"""System call filter (seccomp BPF) that makes dangerous calls fail with an error.

The filter refuses system calls that agents' programs do not need and that have been used to escape from sandboxes:
creating namespaces, mounting, accessing the memory of other processes, using kernel keys, loading BPF programs or
kernel modules, and allocating memory that no limit covers. Socket families other than Unix and IP are refused because
network namespaces do not confine all of them (for example vsock).

Two further rules make a SIGKILL from inside distinguishable from one from outside. A program is process 1 of its
namespace, which the kernel protects from every SIGKILL from inside, with two exceptions that are refused here: signals
with a forged sender, and a program that lowers its own limit on CPU time.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_REFUSED: dict[str, tuple[int, int]] = {  # call numbers on x86-64 and on arm64; -1 if the call does not exist
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "open_tree": (428, 428),
    "fsconfig": (431, 431),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "syslog": (103, 116),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "pidfd_getfd": (438, 438),
    "fanotify_init": (300, 262),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_MMAP, _SETRLIMIT, _PRLIMIT, _PIDFD_SEND_SIGNAL = (9, 222), (160, 164), (302, 261), (424, 424)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # machine -> (column in _REFUSED, AUDIT_ARCH)
_NAMESPACES = 0x7E020000  # all CLONE_NEW* flags for clone()
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6

_SHARED, _ANONYMOUS = 0x01, 0x20  # mmap() flags; both MAP_SHARED and MAP_SHARED_VALIDATE set the first bit
_RLIMIT_CPU = 0

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_END = -1  # jump target in `_refuse`: the instruction after the last one
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data; both architectures are little-endian
_X32 = 0x40000000  # bit that marks x32 ABI call numbers on x86-64
PR_SET_SECCOMP, FILTER = 22, 2

_Code = list[tuple[int, int, int, int]]  # instructions: operation, jump if true, jump if false, operand


def program() -> bytes | None:
    """Return the filter for this machine, or None if its call numbers are not listed here."""
    if platform.machine() not in _MACHINES:
        return None
    column, arch = _MACHINES[platform.machine()]
    code: _Code = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_IF_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_IF_SET, 0, 1, _X32),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        *_search(sorted(_rules(column).items())),
    ]
    return b"".join(struct.pack("<HBBI", *word) for word in code)


def _rules(column: int) -> dict[int, _Code]:
    """Return instructions for each system call that is not always allowed; if they do not return, it is allowed."""
    refused: _Code = [(_RETURN, 0, 0, _ERROR | errno.EPERM)]
    rules = {numbers[column]: refused for numbers in _REFUSED.values() if numbers[column] >= 0}
    # A filter cannot read the flags of clone3; libc uses clone instead.
    rules[_CLONE3[column]] = [(_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
    rules[_CLONE[column]] = _refuse(("any bit", 0, _NAMESPACES))
    rules[_SOCKET[column]] = [
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *[(_JUMP_IF_EQUAL, len(_FAMILIES) - i, 0, family) for i, family in enumerate(_FAMILIES)],
        (_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT),
    ]
    # Pages of a shared anonymous mapping stay allocated after they are unmapped, but count toward no process.
    rules[_MMAP[column]] = _refuse(("any bit", 3, _SHARED), ("any bit", 3, _ANONYMOUS))
    rules[_SETRLIMIT[column]] = _refuse(("equal", 0, _RLIMIT_CPU))
    rules[_PRLIMIT[column]] = [
        *_refuse(("pointer", 2, 0), ("equal", 1, _RLIMIT_CPU)),
        *_refuse(("pointer", 2, 0), ("not equal", 0, 0)),  # the call would change another process's limits
    ]
    rules[_PIDFD_SEND_SIGNAL[column]] = _refuse(("pointer", 2, 0))  # the signal would have a forged sender
    return rules


def _search(rules: list[tuple[int, _Code]]) -> _Code:
    """Return a binary search, which is fast to install: the kernel evaluates a new filter for every call number."""
    if len(rules) == 1:
        number, code = rules[0]
        return [(_JUMP_IF_EQUAL, 0, len(code), number), *code, (_RETURN, 0, 0, _ALLOW)]
    middle = len(rules) // 2
    low, high = _search(rules[:middle]), _search(rules[middle:])
    return [(_JUMP_IF_AT_LEAST, len(low), 0, rules[middle][0]), *low, *high]


def _refuse(*conditions: tuple[str, int, int]) -> _Code:
    """Return instructions that refuse a system call if all conditions (kind, index of the argument, value) hold."""
    code: _Code = []
    for kind, index, value in conditions:
        argument = _FIRST_ARGUMENT + 8 * index
        code.append((_LOAD, 0, 0, argument))
        if kind == "any bit":
            code.append((_JUMP_IF_SET, 0, _END, value))
        elif kind == "equal":
            code.append((_JUMP_IF_EQUAL, 0, _END, value))
        elif kind == "not equal":
            code.append((_JUMP_IF_EQUAL, _END, 0, value))
        else:  # a pointer is not NULL if one of its halves is not 0
            code += [(_JUMP_IF_EQUAL, 0, 2, 0), (_LOAD, 0, 0, argument + 4), (_JUMP_IF_EQUAL, _END, 0, 0)]
    code.append((_RETURN, 0, 0, _ERROR | errno.EPERM))
    end = len(code) - 1
    return [
        (name, end - i if true == _END else true, end - i if false == _END else false, value)
        for i, (name, true, false, value) in enumerate(code)
    ]


def filter_pointer(words: bytes) -> tuple[int, list[object]]:
    """Return the address of the `sock_fprog` struct for prctl(), and the buffers that must be kept alive with it."""
    buffer = ctypes.create_string_buffer(words, len(words))
    header = struct.pack("@HxxxxxxP", len(words) // 8, ctypes.addressof(buffer))
    pointer = ctypes.create_string_buffer(header, len(header))
    return ctypes.addressof(pointer), [buffer, pointer]
