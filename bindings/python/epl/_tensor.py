"""Tensors to and from NumPy and DLPack, without copies, and of whatever else a call is given, which is copied."""
import ctypes as c
import struct
from typing import Any, Tuple

from . import _core as core
from . import _objects as objects
from . import _raw as raw

# Element types as __array_interface__ spells them. bfloat16 has no spelling there; DLPack carries it.
SPELLED = {raw.DTYPE_F32: "<f4", raw.DTYPE_F64: "<f8", raw.DTYPE_F16: "<f2", raw.DTYPE_I8: "|i1", raw.DTYPE_I16: "<i2",
           raw.DTYPE_I32: "<i4", raw.DTYPE_I64: "<i8", raw.DTYPE_U8: "|u1", raw.DTYPE_U16: "<u2",
           raw.DTYPE_U32: "<u4", raw.DTYPE_U64: "<u8", raw.DTYPE_BOOL: "|b1"}
READ = {spelled: number for number, spelled in SPELLED.items()}
CAPSULE, USED = b"dltensor_versioned", b"used_dltensor_versioned"
ON_GPU, LEGACY_STREAM = (2, 13), 1  # as DLPack numbers devices and streams

_api = c.pythonapi
_api.PyCapsule_New.restype, _api.PyCapsule_New.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
_api.PyCapsule_IsValid.restype, _api.PyCapsule_IsValid.argtypes = c.c_int, [c.py_object, c.c_char_p]
_api.PyCapsule_GetPointer.restype, _api.PyCapsule_GetPointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
_api.PyCapsule_SetName.restype, _api.PyCapsule_SetName.argtypes = c.c_int, [c.py_object, c.c_char_p]
# For destructors, which have no object to hold any more.
_is_valid = c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p)(("PyCapsule_IsValid", _api))
_get_pointer = c.PYFUNCTYPE(c.c_void_p, c.c_void_p, c.c_char_p)(("PyCapsule_GetPointer", _api))


class _Managed(c.Structure):
    """The beginning of DLManagedTensorVersioned."""
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("context", c.c_void_p),
                ("deleter", c.CFUNCTYPE(None, c.c_void_p)), ("flags", c.c_uint64), ("data", c.c_void_p),
                ("device_type", c.c_int32), ("device_id", c.c_int32)]


@c.PYFUNCTYPE(None, c.c_void_p)
def _drop(capsule):
    """A capsule that nobody has used owns its tensor."""
    if _is_valid(capsule, CAPSULE):
        address = _get_pointer(capsule, CAPSULE)
        _Managed.from_address(address).deleter(address)


class Tensor(objects.Tensor):
    """A view of a row-major array, or of whatever gives one by DLPack: it is not copied. numpy.asarray(tensor) is a view
    of a tensor again, and so is from_dlpack of NumPy, PyTorch and others. What lies on a GPU is for sessions on that
    GPU, and NumPy does not reach it."""

    def __init__(self, engine: Any, value: Any) -> None:
        interface = getattr(value, "__array_interface__", None)
        if interface is None and not hasattr(value, "__dlpack__"):
            raise TypeError(f"{type(value).__name__} is neither an array nor has it __dlpack__")
        self.adopt(self._of_dlpack(engine, value) if interface is None else self._of_array(engine, value, interface))

    def _of_array(self, engine, value, interface):
        if interface["typestr"] not in READ:
            raise TypeError(f"there is no tensor of elements {interface['typestr']}")
        if not _row_major(interface):
            raise ValueError("the array is not row-major; numpy.ascontiguousarray makes one that is")
        address, read_only = interface["data"]
        self.array = value  # it stays as long as this tensor
        nbytes = int(interface["typestr"][2:])
        for size in interface["shape"]:
            nbytes *= size
        memory = (c.c_char * nbytes).from_address(address)
        dims, ndim = core.array(c.c_int64, interface["shape"])
        made = c.c_void_p()
        core.check(core.library().epl_tensor_create_borrow(
            core.pointer(engine), READ[interface["typestr"]], dims, ndim, memory, nbytes,
            raw.TENSOR_READ_ONLY if read_only else 0, raw.epl_destroy_fn(), None, c.byref(made)))
        return objects.Tensor.own(made.value, engine)

    @staticmethod
    def _of_dlpack(engine, value):
        # The other library sees to it that what it has there comes before the legacy default stream, for which a call
        # waits if nothing is said.
        on_gpu = hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) in ON_GPU
        capsule = value.__dlpack__(max_version=(1, 0), **({"stream": LEGACY_STREAM} if on_gpu else {}))
        if not _api.PyCapsule_IsValid(capsule, CAPSULE):
            raise TypeError(f"{type(value).__name__} gives no DLPack of version 1")
        address = _api.PyCapsule_GetPointer(capsule, CAPSULE)
        _api.PyCapsule_SetName(capsule, USED)  # taken over, also where it fails
        return objects.Tensor.from_dlpack(engine, address)

    def _told(self) -> str:
        return f"{objects.dtype_name(self.dtype())}[{','.join(map(str, self.shape))}]"

    def __len__(self) -> int:
        if not self.ndim():
            raise TypeError("a tensor without dimensions has no length")
        return self.dim(0)

    def tolist(self) -> Any:
        """Its numbers as nested lists; of one without dimensions, the number."""
        return self.numpy().tolist()

    @property
    def shape(self) -> Tuple[int, ...]:
        return tuple(self.dim(i) for i in range(self.ndim()))

    @property
    def __array_interface__(self):
        if self.device() != raw.DEVICE_CPU:
            raise AttributeError("the tensor lies on a GPU, where NumPy cannot read it; DLPack has it")
        spelled = SPELLED.get(self.dtype())
        if spelled is None:
            raise AttributeError(f"NumPy has no {objects.dtype_name(self.dtype())}; DLPack has")
        return {"version": 3, "shape": self.shape, "typestr": spelled,
                "data": (self.data() or 0, bool(self.is_read_only()))}

    def numpy(self) -> Any:
        """A view, which keeps the tensor."""
        if self.device() != raw.DEVICE_CPU:
            raise ValueError("the tensor lies on a GPU, where NumPy cannot read it; DLPack has it")
        import numpy
        return numpy.asarray(self)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if max_version is None or max_version[0] < 1:
            raise BufferError("a tensor is given as DLPack of version 1")
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a tensor is given where it lies, and not copied")
        return _api.PyCapsule_New(self.to_dlpack(), CAPSULE, c.cast(_drop, c.c_void_p))

    def __dlpack_device__(self):
        if self.device() == raw.DEVICE_CPU:
            return 1, 0
        address = self.to_dlpack()
        managed = _Managed.from_address(address)
        place = managed.device_type, managed.device_id
        managed.deleter(address)
        return place


def _row_major(interface):
    """Whether elements lie one behind the other; dimensions of one element may have any stride."""
    strides, size = interface.get("strides"), int(interface["typestr"][2:])
    if strides is None or 0 in interface["shape"]:
        return True
    for count, stride in zip(reversed(interface["shape"]), reversed(strides)):
        if count != 1 and stride != size:
            return False
        size *= count
    return True


def _numpy():
    try:
        import numpy
        return numpy
    except ImportError:
        return None


def of(engine, value, dtype, what="a tensor"):
    """The tensor of `value` with elements of `dtype`. Tensors and arrays that have this type are not copied. All else
    is: arrays of another width of the same kind, arrays that are not row-major, lists and numbers. `what` begins the
    message of an error."""
    if isinstance(value, core.Handle):
        return value
    interface = getattr(value, "__array_interface__", None)
    if interface is None and hasattr(value, "__dlpack__"):
        try:
            made = Tensor(engine, value)
            if made.dtype() == dtype or _numpy() is None or made.device() != raw.DEVICE_CPU:
                return made
            if made.dtype() == raw.DTYPE_BF16:
                value = _widened(_numpy(), made)
            elif made.dtype() not in SPELLED:
                return made
            else:
                value = made.numpy()
        except core.Error:  # not row-major: NumPy copies it, where the other library lets it
            if _numpy() is None or not hasattr(value, "__array__"):
                raise
    elif interface is not None and READ.get(interface["typestr"]) == dtype and _row_major(interface):
        return Tensor(engine, value)
    numpy = _numpy()
    if numpy is None:
        dims, data = packed(value, dtype, what)
        return Tensor.create_copy(engine, dtype, dims, data)
    array = converted(numpy, value, dtype, what)
    return Tensor.create_copy(engine, dtype, array.shape, array.tobytes()) if dtype == raw.DTYPE_BF16 else \
        Tensor(engine, array)


def converted(numpy, value, dtype, what):
    """A row-major array of elements `dtype`, those of bfloat16 as their bits."""
    array = numpy.asarray(value)
    if dtype == raw.DTYPE_BF16 and array.dtype.kind in "fiub":
        return _bfloat16(numpy, array)
    if dtype not in SPELLED or not _fits(array, numpy.dtype(SPELLED[dtype]), numpy):
        raise TypeError(f"{what} has elements {objects.dtype_name(dtype)}; given was {_said(array, value)}")
    return numpy.ascontiguousarray(array, SPELLED[dtype]).reshape(array.shape)


def _said(array, value):
    if array.dtype.kind == "O" or not hasattr(value, "dtype"):
        return f"a {type(value).__name__} of {array.dtype} numbers" if array.dtype.kind in "fiub" else \
            f"a {type(value).__name__} that is no array of numbers"
    return f"an array of {array.dtype}"


def _fits(array, target, numpy):
    """Whether nothing but the precision of a float is lost. Integers of any width do where all values are in range."""
    if array.size == 0 or array.dtype == target:
        return True
    if array.dtype.kind in "iub" and target.kind in "iu":
        limits = numpy.iinfo(target)
        return int(array.min()) >= limits.min and int(array.max()) <= limits.max
    return array.dtype.kind in "fiub" and target.kind == "f"


def _bfloat16(numpy, array):
    """Rounded to the nearest, ties to even, as IEEE 754 rounds; NaN stays NaN."""
    wide = numpy.ascontiguousarray(array, numpy.float32)
    bits = wide.view(numpy.uint32) if wide.ndim else wide.reshape(1).view(numpy.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(numpy.uint16)
    return numpy.where(numpy.isnan(wide.reshape(bits.shape)), numpy.uint16(0x7FC0), rounded).reshape(array.shape)


def _widened(numpy, tensor):
    """What a tensor of bfloat16 holds, as float32; no number is lost."""
    count = 1
    for size in tensor.shape:
        count *= size
    if count == 0:
        return numpy.zeros(tensor.shape, numpy.float32)
    bits = numpy.ctypeslib.as_array((c.c_uint16 * count).from_address(tensor.data()))
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32).reshape(tensor.shape)


# Without NumPy: how the struct module spells elements.
PACKED = {raw.DTYPE_F32: "f", raw.DTYPE_F64: "d", raw.DTYPE_F16: "e", raw.DTYPE_I8: "b", raw.DTYPE_I16: "h",
          raw.DTYPE_I32: "i", raw.DTYPE_I64: "q", raw.DTYPE_U8: "B", raw.DTYPE_U16: "H", raw.DTYPE_U32: "I",
          raw.DTYPE_U64: "Q", raw.DTYPE_BOOL: "?"}


def packed(value, dtype, what):
    """Dimensions and bytes of nested lists of numbers."""
    dims, flat = [], [value]
    while flat and isinstance(flat[0], (list, tuple)):
        lengths = {len(each) if isinstance(each, (list, tuple)) else -1 for each in flat}
        if len(lengths) != 1:
            raise TypeError(f"{what}: its rows are not of one length")
        dims.append(lengths.pop())
        flat = [each for row in flat for each in row]
    if dtype not in PACKED:
        raise TypeError(f"{what} has elements {objects.dtype_name(dtype)}, which need NumPy or DLPack")
    try:
        return dims, struct.pack(f"<{len(flat)}{PACKED[dtype]}", *flat)
    except (struct.error, OverflowError) as error:
        raise TypeError(f"{what} has elements {objects.dtype_name(dtype)}: {error}") from None
