"""LLVM IR as text: a module of functions, and functions with structured loops."""

from contextlib import contextmanager
from hashlib import sha256

from tilejax.lowering.cpu.host import Host


class Module:
    """The text of a module while it grows.

    **Arguments:**

    - `host`: the CPU that the code is for.
    """

    def __init__(self, host: Host):
        self.host = host
        self.declarations: set[str] = set()
        self.globals: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.uses_amx = False
        self.streams = False

    def declare(self, text: str) -> None:
        """Add a declaration, `declare T @f(...)`, unless it is there."""
        self.declarations.add(text)

    def zeros(self) -> str:
        """Return the name of 64 zero bytes, where masked-off loads may go."""
        self.globals["@zeros"] = "internal global [64 x i8] zeroinitializer, align 64"
        return "@zeros"

    def past_caches(self) -> str:
        """Return what to add to a store that need not stay in a cache."""
        self.streams = True
        return "!nontemporal !0"

    def constant(self, data: bytes) -> str:
        """Return the name of constant bytes, aligned for vectors."""
        name = f"@constant_{sha256(data).hexdigest()[:16]}"
        # what is read as a whole vector may pass the end
        data += bytes(64)
        text = "".join(f"\\{byte:02X}" for byte in data)
        kind = f"internal constant [{len(data)} x i8]"
        self.globals[name] = f'{kind} c"{text}", align 64'
        return name

    def text(self) -> str:
        """Return the whole module."""
        data = [f"{name} = {value}" for name, value in self.globals.items()]
        notes = ["!0 = !{i32 1}"] if self.streams else []
        functions = self.functions.values()
        return "\n".join([*sorted(self.declarations), *data, *functions, *notes])


class Function:
    """A function's lines while they grow.

    **Arguments:**

    - `module`: where it will live.
    - `header`: its signature, `define internal void @f(ptr %a)`.
    """

    def __init__(self, module: Module, header: str):
        self.module, self.header = module, header
        self.lines: list[str] = []
        self.entry: list[str] = []
        self._zeros: dict[str, str] = {}
        self._names = 0
        self._labels = 0

    def name(self, prefix: str = "v") -> str:
        """Return a new name for a value."""
        self._names += 1
        return f"%{prefix}{self._names}"

    def label(self) -> str:
        """Return a new label, without its colon."""
        self._labels += 1
        return f"L{self._labels}"

    def at_entry(self, right: str, prefix: str = "s") -> str:
        """Define a value in the entry block, for allocations and fixed addresses."""
        name = self.name(prefix)
        self.entry.append(f"{name} = {right}")
        return name

    def alloca(self, ty: str) -> str:
        """Reserve a variable on the stack; LLVM keeps it in a register if it can."""
        return self.at_entry(f"alloca {ty}, align 64")

    def unknown_zeros(self, ty: str) -> str:
        """Return zeros of at most 64 bytes that LLVM cannot compute with."""
        if ty not in self._zeros:
            right = f"load volatile {ty}, ptr {self.module.zeros()}, align 64"
            self._zeros[ty] = self.at_entry(right)
        return self._zeros[ty]

    def line(self, text: str) -> None:
        """Append one line."""
        self.lines.append(text)

    def place(self, label: str) -> None:
        """Start the block of a label, falling through to it."""
        self.lines += [f"br label %{label}", f"{label}:"]

    @contextmanager
    def loop(self, count, *, index: str | None = None, start="0", step: int = 1):
        """Emit what is inside the `with` as the body of a counted loop.

        **Arguments:**

        - `count`: where the index stops, a Python number or the name of an i64.
        - `index`: the name that the body knows the i64 index by.
        - `start`, `step`: where it starts, and what is added to it.

        **Returns:** the index's name.
        """
        index = index or self.name("i")
        if isinstance(count, int) and start == "0" and 0 < count <= step:
            self.line(f"{index} = add i64 0, 0")
            yield index
            return
        slot, end = self.alloca("i64"), self.label()
        head, body = self.label(), self.label()
        more, following = self.name(), self.name()
        self.line(f"store i64 {start}, ptr {slot}")
        self.place(head)
        self.lines += [
            f"{index} = load i64, ptr {slot}",
            f"{more} = icmp slt i64 {index}, {count}",
            f"br i1 {more}, label %{body}, label %{end}",
            f"{body}:",
        ]
        yield index
        self.lines += [
            f"{following} = add nuw nsw i64 {index}, {step}",
            f"store i64 {following}, ptr {slot}",
            f"br label %{head}",
            f"{end}:",
        ]

    def finish(self, result: str = "ret void") -> None:
        """End the function and hand its text to the module."""
        name = self.header.split("@", 1)[1].split("(", 1)[0]
        body = [f"{self.header} {{", "entry:", *self.entry]
        start = "start:"
        text = "\n".join([*body, "br label %start", start, *self.lines, result, "}"])
        self.module.functions[name] = text
