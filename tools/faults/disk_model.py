"""The file calls of a run, as strace tells them, and what a disk has of them if the power goes."""

import dataclasses
import os
import re

KINDS = {
    "Write": ("write", "pwrite64", "writev"),
    "Sync": ("fsync", "fdatasync"),
    "Rename": ("rename", "renameat", "renameat2"),
    "Remove": ("unlink", "unlinkat"),
}
NAMES = [name for names in KINDS.values() for name in names] + ["openat", "ftruncate"]
LINE = re.compile(r"(\d+) +(\w+)\((.*)")
QUOTED = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclasses.dataclass
class Call:
    name: str
    path: str
    rest: str
    inside: bool
    # Of its name and thread, from one: as strace counts them.
    number: int


def unquoted(text):
    """The strings of a line; strace writes every byte of them as \\xNN."""
    return [bytes.fromhex(found.replace("\\x", "")) for found in QUOTED.findall(text)]


def calls(program, arguments, out, log):
    wrapper = ["strace", "-f", "-qq", "-y", "-xx", "-s", "10000000", "-o", str(log), "-e", "trace=" + ",".join(NAMES)]
    program.works(arguments, wrapper=wrapper, patience=300)
    found, numbers = [], {}
    for line in log.read_text().splitlines():
        match = LINE.match(line)
        if not match:
            continue  # the end of a call that another thread's interrupted
        thread, name, rest = match.groups()
        numbers[thread, name] = numbers.get((thread, name), 0) + 1
        open_file = re.match(r"\d+<((?:\\x[0-9a-f]{2})*)>", rest)
        if open_file:
            path = bytes.fromhex(open_file[1].replace("\\x", "")).decode(errors="replace")
        else:
            strings = unquoted(rest)
            path = os.path.join(str(program.folder), strings[0].decode(errors="replace")) if strings else ""
        inside = path == str(out) or path.startswith(f"{out}/")
        found.append(Call(name, path, rest, inside, numbers[thread, name]))
    return found


class Inode:
    def __init__(self):
        self.content, self.synced = b"", b""


def states(calls, out):
    """Every different state that a loss of power can leave: all names with the content that was synced, or only the names
    that were synced as well. Beside them the files at the end."""
    names, synced_names, found = {}, {}, []

    def note():
        for which in (names, synced_names):
            state = {name: inode.synced for name, inode in which.items()}
            if state not in found:
                found.append(state)

    for call in calls:
        name = os.path.relpath(call.path, out)
        if not call.inside or "/" in name or name == ".lock":
            continue
        if call.name != "openat":
            note()
        if call.name == "openat":
            # A folder is opened to be synced; a failed call made nothing.
            failed = re.search(r"= -1 ", call.rest)
            if "O_CREAT" in call.rest and not failed:
                inode = names.setdefault(name, Inode())
                inode.content = b"" if "O_TRUNC" in call.rest else inode.content
        elif call.name in KINDS["Write"]:
            data = b"".join(unquoted(call.rest))
            if name in names:
                names[name].content += data
        elif call.name == "ftruncate" and name in names:
            length = int(re.search(r">, (\d+)", call.rest)[1])
            names[name].content = names[name].content[:length].ljust(length, b"\0")
        elif call.name in KINDS["Sync"]:
            if name == ".":
                synced_names = dict(names)
            elif name in names:
                names[name].synced = names[name].content
        elif call.name in KINDS["Rename"]:
            target = os.path.basename(unquoted(call.rest)[-1].decode())
            names[target] = names.pop(name)
        elif call.name in KINDS["Remove"]:
            names.pop(name, None)
    note()
    return found, {name: inode.content for name, inode in names.items()}
