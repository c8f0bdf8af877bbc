use crate::engine::Engine;
use crate::error::{check, Error, Result};
use crate::handle::{given, text_of};
use epl_sys as sys;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// The type of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DType(pub i32);

#[allow(missing_docs)]
impl DType {
    pub const F32: DType = DType(sys::EPL_DTYPE_F32);
    pub const F64: DType = DType(sys::EPL_DTYPE_F64);
    pub const F16: DType = DType(sys::EPL_DTYPE_F16);
    pub const BF16: DType = DType(sys::EPL_DTYPE_BF16);
    pub const I8: DType = DType(sys::EPL_DTYPE_I8);
    pub const I16: DType = DType(sys::EPL_DTYPE_I16);
    pub const I32: DType = DType(sys::EPL_DTYPE_I32);
    pub const I64: DType = DType(sys::EPL_DTYPE_I64);
    pub const U8: DType = DType(sys::EPL_DTYPE_U8);
    pub const U16: DType = DType(sys::EPL_DTYPE_U16);
    pub const U32: DType = DType(sys::EPL_DTYPE_U32);
    pub const U64: DType = DType(sys::EPL_DTYPE_U64);
    pub const BOOL: DType = DType(sys::EPL_DTYPE_BOOL);

    /// "f32", ...; empty for what the library does not know.
    pub fn name(self) -> &'static str {
        let name = unsafe { sys::epl_dtype_name(self.0) };
        if name.is_null() {
            return "";
        }
        unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap_or("")
    }
}

impl std::fmt::Debug for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that tensors hold. `bool` is none: its bytes may be anything in a tensor.
pub trait Element: sealed::Sealed + Copy + 'static {
    /// What it is in a tensor.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty = $dtype:ident),*) => {
        $(impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}
elements!(f32 = F32, f64 = F64, i8 = I8, i16 = I16, i32 = I32, i64 = I64, u8 = U8, u16 = U16, u32 = U32, u64 = U64);

/// Data in row-major order. `'a` is for how long borrowed memory lives; `'static` where the tensor owns its own.
pub struct Tensor<'a> {
    pub(crate) raw: NonNull<sys::epl_tensor>,
    _memory: PhantomData<&'a [u8]>,
}
// The header: tensors are for any threads. Nothing here writes their memory but `view_mut`, which takes them mutably.
unsafe impl Send for Tensor<'_> {}
unsafe impl Sync for Tensor<'_> {}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        unsafe { sys::epl_tensor_destroy(self.raw.as_ptr()) }
    }
}

/// A tensor that somebody else owns, as calls take it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct TensorRef<'t> {
    pub(crate) raw: *const sys::epl_tensor,
    _owner: PhantomData<&'t ()>,
}
unsafe impl Send for TensorRef<'_> {}
unsafe impl Sync for TensorRef<'_> {}

impl<'t> From<&'t Tensor<'_>> for TensorRef<'t> {
    fn from(tensor: &'t Tensor<'_>) -> TensorRef<'t> {
        TensorRef::of(tensor.raw.as_ptr())
    }
}

impl<'t> TensorRef<'t> {
    pub(crate) fn of(raw: *const sys::epl_tensor) -> TensorRef<'t> {
        TensorRef { raw, _owner: PhantomData }
    }
    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        DType(unsafe { sys::epl_tensor_dtype(self.raw) })
    }
    /// The shape.
    pub fn dims(&self) -> Vec<i64> {
        (0..unsafe { sys::epl_tensor_ndim(self.raw) }).map(|i| unsafe { sys::epl_tensor_dim(self.raw, i) }).collect()
    }
    /// The bytes where they lie; none of a tensor of a GPU, where the host cannot read them.
    pub fn bytes(&self) -> &'t [u8] {
        let bytes = unsafe { sys::epl_tensor_bytes(self.raw) };
        let data = unsafe { sys::epl_tensor_data(self.raw) };
        if bytes == 0 || data.is_null() {
            return &[];
        }
        unsafe { std::slice::from_raw_parts(data.cast(), bytes) }
    }
    /// The elements where they lie, which must be of type `T`.
    pub fn view<T: Element>(&self) -> Result<&'t [T]> {
        let bytes = self.bytes();
        let data = bytes.as_ptr().cast::<T>();
        if self.dtype() != T::DTYPE {
            return Err(Error::invalid(format!("the tensor holds {:?}, not {:?}", self.dtype(), T::DTYPE)));
        }
        if unsafe { sys::epl_tensor_device(self.raw) } != sys::EPL_DEVICE_CPU {
            return Err(Error::invalid("the tensor lies on a GPU, where the host cannot read it".into()));
        }
        if bytes.is_empty() {
            return Ok(&[]);
        }
        if !data.is_aligned() {
            return Err(Error::invalid("the tensor's memory is not aligned for its type".into()));
        }
        Ok(unsafe { std::slice::from_raw_parts(data, bytes.len() / size_of::<T>()) })
    }
}

impl<'a> Tensor<'a> {
    pub(crate) fn own(raw: NonNull<sys::epl_tensor>) -> Tensor<'a> {
        Tensor { raw, _memory: PhantomData }
    }
    /// A tensor of the shape `dims` over `values` where they lie, without a copy.
    pub fn borrow<T: Element>(engine: &Engine, values: &'a [T], dims: &[i64]) -> Result<Tensor<'a>> {
        let bytes = size_of_val(values);
        given(|place| unsafe {
            sys::epl_tensor_create_borrow(
                engine.0.as_ptr(),
                T::DTYPE.0,
                dims.as_ptr(),
                ndim(dims),
                values.as_ptr() as *mut c_void,
                bytes,
                sys::EPL_TENSOR_READ_ONLY,
                None,
                std::ptr::null_mut(),
                place,
            )
        })
        .map(Tensor::own)
    }
    /// As calls take it.
    pub fn by_ref(&self) -> TensorRef<'_> {
        self.into()
    }
    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.by_ref().dtype()
    }
    /// The shape.
    pub fn dims(&self) -> Vec<i64> {
        self.by_ref().dims()
    }
    /// The bytes where they lie.
    pub fn bytes(&self) -> &[u8] {
        self.by_ref().bytes()
    }
    /// The elements where they lie, which must be of type `T`.
    pub fn view<T: Element>(&self) -> Result<&[T]> {
        self.by_ref().view()
    }
    /// The same to write into, of a tensor that owns its memory.
    pub fn view_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        if unsafe { sys::epl_tensor_is_read_only(self.raw.as_ptr()) } != 0 {
            return Err(Error::invalid("the tensor is read-only".into()));
        }
        let view = self.view::<T>()?;
        let (data, length) = (view.as_ptr() as *mut T, view.len());
        Ok(unsafe { std::slice::from_raw_parts_mut(data, length) })
    }
}

fn ndim(dims: &[i64]) -> i32 {
    i32::try_from(dims.len()).unwrap_or(i32::MAX)
}

impl Tensor<'static> {
    /// A copy of `values` in the shape `dims`, whose product is their number.
    pub fn new<T: Element>(engine: &Engine, values: &[T], dims: &[i64]) -> Result<Tensor<'static>> {
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
        Tensor::from_bytes(engine, T::DTYPE, bytes, dims)
    }
    /// A `DLManagedTensorVersioned`, by which a library that knows DLPack takes the data without a copy. It keeps the
    /// data alive, and whoever receives it calls its deleter, and writes nothing while the tensor is read here.
    pub fn to_dlpack(&self) -> Result<NonNull<c_void>> {
        given(|place| unsafe { sys::epl_tensor_to_dlpack(self.raw.as_ptr(), place) })
    }
    /// Of such a struct, of a row-major tensor of the CPU or of an NVIDIA GPU, which it takes over, also when it fails.
    /// One of a GPU is for sessions on that GPU ([`Call::stream`](crate::Call::stream)).
    ///
    /// # Safety
    /// The struct is one of version 1 of DLPack, its memory is that of its type, and nobody else writes to it.
    pub unsafe fn from_dlpack(engine: &Engine, managed: NonNull<c_void>) -> Result<Tensor<'static>> {
        given(|place| unsafe { sys::epl_tensor_from_dlpack(engine.0.as_ptr(), managed.as_ptr(), place) })
            .map(Tensor::own)
    }
    /// Zeros.
    pub fn zeros(engine: &Engine, dtype: DType, dims: &[i64]) -> Result<Tensor<'static>> {
        given(|place| unsafe { sys::epl_tensor_create(engine.0.as_ptr(), dtype.0, dims.as_ptr(), ndim(dims), place) })
            .map(Tensor::own)
    }
    /// A copy of the bytes of elements of any type.
    pub fn from_bytes(engine: &Engine, dtype: DType, bytes: &[u8], dims: &[i64]) -> Result<Tensor<'static>> {
        given(|place| unsafe {
            sys::epl_tensor_create_copy(
                engine.0.as_ptr(),
                dtype.0,
                dims.as_ptr(),
                ndim(dims),
                bytes.as_ptr().cast(),
                bytes.len(),
                place,
            )
        })
        .map(Tensor::own)
    }
}

impl std::fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({:?} {:?})", self.dtype(), self.dims())
    }
}

/// Names an input, an output, a parameter or a field, and says its type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The name.
    pub name: String,
    /// The type of the elements.
    pub dtype: DType,
    /// The shape; -1 where a plan has not bound it yet.
    pub dims: Vec<i64>,
}

/// `count` descriptions, each of which `f` fills in.
pub(crate) fn infos(
    count: i64, f: impl Fn(i64, *mut sys::epl_tensor_info) -> *mut sys::epl_error,
) -> Result<Vec<Info>> {
    (0..count)
        .map(|index| {
            let mut info = sys::epl_tensor_info::default();
            check(f(index, &mut info))?;
            Ok(Info {
                name: unsafe { text_of(info.name, info.name_length as usize) },
                dtype: DType(info.dtype),
                dims: info.dims[..info.ndim as usize].to_vec(),
            })
        })
        .collect()
}

#[cfg(feature = "ndarray")]
mod arrays {
    use super::*;
    use ndarray::{ArrayBase, ArrayViewD, Data, Dimension, IxDyn};

    fn dims_of(shape: &[usize]) -> Vec<i64> {
        shape.iter().map(|&one| one as i64).collect()
    }

    impl Tensor<'static> {
        /// A copy of an array, of whatever order its memory is.
        pub fn from_array<T, S, D>(engine: &Engine, array: &ArrayBase<S, D>) -> Result<Tensor<'static>>
        where
            T: Element,
            S: Data<Elem = T>,
            D: Dimension,
        {
            match array.as_slice() {
                Some(values) => Tensor::new(engine, values, &dims_of(array.shape())),
                None => Tensor::new(engine, &array.iter().copied().collect::<Vec<T>>(), &dims_of(array.shape())),
            }
        }
    }

    impl<'a> Tensor<'a> {
        /// A tensor over an array in row-major order, without a copy.
        pub fn borrow_array<T, S, D>(engine: &Engine, array: &'a ArrayBase<S, D>) -> Result<Tensor<'a>>
        where
            T: Element,
            S: Data<Elem = T>,
            D: Dimension,
        {
            let values = array
                .as_slice()
                .ok_or_else(|| Error::invalid("the array is not in row-major order; from_array copies it".into()))?;
            Tensor::borrow(engine, values, &dims_of(array.shape()))
        }
        /// The elements as an array, without a copy.
        pub fn array<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
            let shape: Vec<usize> = self.dims().iter().map(|&one| one as usize).collect();
            ArrayViewD::from_shape(IxDyn(&shape), self.view()?).map_err(|error| Error::invalid(error.to_string()))
        }
    }
}

#[cfg(feature = "safetensors")]
mod files {
    use super::*;
    use safetensors::tensor::{Dtype, TensorView};

    const TYPES: [(DType, Dtype); 13] = [
        (DType::F32, Dtype::F32),
        (DType::F64, Dtype::F64),
        (DType::F16, Dtype::F16),
        (DType::BF16, Dtype::BF16),
        (DType::I8, Dtype::I8),
        (DType::I16, Dtype::I16),
        (DType::I32, Dtype::I32),
        (DType::I64, Dtype::I64),
        (DType::U8, Dtype::U8),
        (DType::U16, Dtype::U16),
        (DType::U32, Dtype::U32),
        (DType::U64, Dtype::U64),
        (DType::BOOL, Dtype::BOOL),
    ];

    impl Tensor<'static> {
        /// A copy of a tensor of a safetensors file.
        pub fn from_safetensors(engine: &Engine, view: &TensorView<'_>) -> Result<Tensor<'static>> {
            let (dtype, _) = TYPES
                .iter()
                .find(|(_, theirs)| *theirs == view.dtype())
                .ok_or_else(|| Error::invalid(format!("tensors of type {:?} have no counterpart", view.dtype())))?;
            let dims: Vec<i64> = view.shape().iter().map(|&one| one as i64).collect();
            Tensor::from_bytes(engine, *dtype, view.data(), &dims)
        }
    }

    impl Tensor<'_> {
        /// The tensor as the crate `safetensors` writes it, without a copy.
        pub fn to_safetensors(&self) -> Result<TensorView<'_>> {
            let (_, dtype) = TYPES
                .iter()
                .find(|(ours, _)| *ours == self.dtype())
                .ok_or_else(|| Error::invalid(format!("tensors of type {:?} have no counterpart", self.dtype())))?;
            let shape = self.dims().iter().map(|&one| one as usize).collect();
            TensorView::new(*dtype, shape, self.bytes()).map_err(|error| Error::invalid(error.to_string()))
        }
    }
}
