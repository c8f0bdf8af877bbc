"""Tensors to and from NumPy and DLPack, without copies."""
import ctypes as c

from . import _core as core
from . import _objects as objects
from . import _raw as raw

# Element types as __array_interface__ spells them. bfloat16 has no spelling there; DLPack carries it.
SPELLED = {raw.DTYPE_F32: "<f4", raw.DTYPE_F64: "<f8", raw.DTYPE_F16: "<f2", raw.DTYPE_I8: "|i1", raw.DTYPE_I16: "<i2",
           raw.DTYPE_I32: "<i4", raw.DTYPE_I64: "<i8", raw.DTYPE_U8: "|u1", raw.DTYPE_U16: "<u2",
           raw.DTYPE_U32: "<u4", raw.DTYPE_U64: "<u8", raw.DTYPE_BOOL: "|b1"}
READ = {spelled: number for number, spelled in SPELLED.items()}
CAPSULE, USED = b"dltensor_versioned", b"used_dltensor_versioned"

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
                ("deleter", c.CFUNCTYPE(None, c.c_void_p))]


@c.PYFUNCTYPE(None, c.c_void_p)
def _drop(capsule):
    """A capsule that nobody has used owns its tensor."""
    if _is_valid(capsule, CAPSULE):
        address = _get_pointer(capsule, CAPSULE)
        _Managed.from_address(address).deleter(address)


class Tensor(objects.Tensor):
    """A view of a row-major array, or of whatever gives one by DLPack: it is not copied. numpy.asarray(tensor) is a view
    of a tensor again, and so is from_dlpack of NumPy, PyTorch and others."""

    def __init__(self, engine, value):
        interface = getattr(value, "__array_interface__", None)
        if interface is None and not hasattr(value, "__dlpack__"):
            raise TypeError(f"{type(value).__name__} is neither an array nor has it __dlpack__")
        self.adopt(self._of_dlpack(engine, value) if interface is None else self._of_array(engine, value, interface))

    def _of_array(self, engine, value, interface):
        if interface["typestr"] not in READ:
            raise TypeError(f"there is no tensor of elements {interface['typestr']}")
        if not value.flags.c_contiguous:
            raise ValueError("the array is not row-major; numpy.ascontiguousarray makes one that is")
        address, read_only = interface["data"]
        self.array = value  # it stays as long as this tensor
        memory = (c.c_char * value.nbytes).from_address(address)
        dims, ndim = core.array(c.c_int64, value.shape)
        made = c.c_void_p()
        core.check(core.library().epl_tensor_create_borrow(
            core.pointer(engine), READ[interface["typestr"]], dims, ndim, memory, value.nbytes,
            raw.TENSOR_READ_ONLY if read_only else 0, raw.epl_destroy_fn(), None, c.byref(made)))
        return objects.Tensor.own(made.value)

    @staticmethod
    def _of_dlpack(engine, value):
        capsule = value.__dlpack__(max_version=(1, 0))
        if not _api.PyCapsule_IsValid(capsule, CAPSULE):
            raise TypeError(f"{type(value).__name__} gives no DLPack of version 1")
        address = _api.PyCapsule_GetPointer(capsule, CAPSULE)
        _api.PyCapsule_SetName(capsule, USED)  # taken over, also where it fails
        return objects.Tensor.from_dlpack(engine, address)

    @property
    def shape(self):
        return tuple(self.dim(i) for i in range(self.ndim()))

    @property
    def __array_interface__(self):
        spelled = SPELLED.get(self.dtype())
        if spelled is None:
            raise AttributeError(f"NumPy has no {objects.dtype_name(self.dtype())}; DLPack has")
        return {"version": 3, "shape": self.shape, "typestr": spelled,
                "data": (self.data() or 0, bool(self.is_read_only()))}

    def numpy(self):
        """A view, which keeps the tensor."""
        import numpy
        return numpy.asarray(self)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if max_version is None or max_version[0] < 1:
            raise BufferError("a tensor is given as DLPack of version 1")
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a tensor is given where it lies, and not copied")
        return _api.PyCapsule_New(self.to_dlpack(), CAPSULE, c.cast(_drop, c.c_void_p))

    def __dlpack_device__(self):
        return 1, 0  # the CPU
