//! Operators of the host's own.
use crate::engine::Engine;
use crate::error::{check, guarded, Error, Result};
use crate::handle::text_of;
use crate::hostdata::elements_mut;
use crate::tensor::{DType, Element};
use epl_sys as sys;
use std::ffi::{c_char, c_void};

/// A tensor that an [`Op`] reads or writes, dense and row-major. `B` is its bytes: `&[u8]` or `&mut [u8]`.
#[derive(Debug)]
pub struct Operand<B> {
    /// The type of the elements; `DType(0)` where it is absent.
    pub dtype: DType,
    /// The shape.
    pub dims: Vec<i64>,
    /// The elements, in the machine's order of bytes; none where only types are asked for.
    pub data: B,
}

/// What an [`Op`] reads.
pub type OpInput<'o> = Operand<&'o [u8]>;
/// What an [`Op`] writes.
pub type OpOutput<'o> = Operand<&'o mut [u8]>;

impl<B> Operand<B> {
    /// An input that the node leaves out, or a gradient that nobody wants or through which nothing flows back.
    pub fn is_absent(&self) -> bool {
        self.dtype == DType(0)
    }
}

impl<'o> OpInput<'o> {
    /// The elements as numbers. Panics where they are of another type.
    pub fn view<T: Element>(&self) -> &'o [T] {
        assert_eq!(self.dtype, T::DTYPE, "the type of the operand");
        let (_, elements, _) = unsafe { self.data.align_to() }; // every bit pattern is a value of an Element
        assert_eq!(size_of_val(elements), self.data.len(), "the operand is not aligned");
        elements
    }
}

impl OpOutput<'_> {
    /// The elements as numbers. Panics where they are of another type.
    pub fn view_mut<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(self.dtype, T::DTYPE, "the type of the operand");
        elements_mut(self.data)
    }
}

/// An operator of the host's own. Any threads may call it at once, hence `Send` and `Sync`. The same operands must always
/// have the same answer. `attributes` are those of the node, a JSON object. An error or a panic ends the call that a
/// method serves: a plan is not made, a step changes nothing.
pub trait Op: Send + Sync + 'static {
    /// Whether [`Op::gradient`] is there: whether it can be trained through.
    const HAS_GRADIENT: bool = false;

    /// The types and shapes of the outputs, of the full batch and of a rank's part of it.
    fn shape(&self, attributes: &str, inputs: &[OpInput<'_>]) -> Result<Vec<(DType, Vec<i64>)>>;
    /// Writes the outputs.
    fn run(&self, attributes: &str, inputs: &[OpInput<'_>], outputs: &mut [OpOutput<'_>]) -> Result<()>;
    /// Writes the gradients of the inputs, of which there are as many as inputs; those that nobody wants are absent.
    /// `upstream` are the gradients of the outputs.
    fn gradient(
        &self, _attributes: &str, _inputs: &[OpInput<'_>], _outputs: &[OpInput<'_>], _upstream: &[OpInput<'_>],
        _gradients: &mut [OpOutput<'_>],
    ) -> Result<()> {
        Err(Error::new(crate::Code::UNSUPPORTED, "the operator has no gradient"))
    }
}

/// What an [`Op`] is called in a model's file.
#[derive(Clone, Debug, Default)]
pub struct OpOptions<'s> {
    /// Not the standard's.
    pub domain: &'s str,
    /// The op type.
    pub name: &'s str,
    /// How many outputs it has; 0: one.
    pub outputs: u32,
    /// How dimensions of inputs and outputs correspond, a letter for each: "n k, k -> n k" lets a batch be cut at n, and
    /// "... k -> ... k" in any dimension in front. "| unshardable k" behind it says what must stay uncut. Empty: nothing
    /// is cut.
    pub sharding: &'s str,
}

/// The operands at `at`, which are there during the call, with what `data` makes of their memory.
unsafe fn operands<B>(
    at: *const sys::epl_op_tensor, count: usize, data: unsafe fn(*mut u8, usize) -> B,
) -> Vec<Operand<B>> {
    (0..count)
        .map(|i| {
            let raw = &*at.add(i);
            let (memory, bytes) = match raw.data.is_null() || raw.bytes == 0 {
                true => (std::ptr::NonNull::<u64>::dangling().as_ptr().cast(), 0),
                false => (raw.data.cast::<u8>(), raw.bytes as usize),
            };
            Operand { dtype: DType(raw.dtype), dims: raw.dims[..raw.ndim as usize].to_vec(), data: data(memory, bytes) }
        })
        .collect()
}

unsafe fn read<'o>(at: *mut u8, bytes: usize) -> &'o [u8] {
    std::slice::from_raw_parts(at, bytes)
}

unsafe fn write<'o>(at: *mut u8, bytes: usize) -> &'o mut [u8] {
    std::slice::from_raw_parts_mut(at, bytes)
}

unsafe extern "C" fn shape<O: Op>(
    userdata: *mut c_void, attributes: *const c_char, length: usize, inputs: *const sys::epl_op_tensor,
    input_count: usize, outputs: *mut sys::epl_op_tensor, output_count: usize,
) -> *mut sys::epl_error {
    guarded(|| {
        let types =
            (*(userdata as *const O)).shape(&text_of(attributes, length), &operands(inputs, input_count, read))?;
        if types.len() != output_count {
            let count = types.len();
            let message = format!("shape gave the types of {count} outputs, the operator has {output_count}");
            return Err(Error::invalid(message));
        }
        for (i, (dtype, dims)) in types.iter().enumerate() {
            let output = &mut *outputs.add(i);
            let place = output.dims.get_mut(..dims.len());
            place.ok_or_else(|| Error::invalid(format!("{dims:?} has too many dimensions")))?.copy_from_slice(dims);
            (output.dtype, output.ndim) = (dtype.0, dims.len() as i32);
        }
        Ok(())
    })
}

unsafe extern "C" fn run<O: Op>(
    userdata: *mut c_void, attributes: *const c_char, length: usize, inputs: *const sys::epl_op_tensor,
    input_count: usize, outputs: *const sys::epl_op_tensor, output_count: usize,
) -> *mut sys::epl_error {
    guarded(|| {
        (*(userdata as *const O)).run(
            &text_of(attributes, length),
            &operands(inputs, input_count, read),
            &mut operands(outputs, output_count, write),
        )
    })
}

unsafe extern "C" fn gradient<O: Op>(
    userdata: *mut c_void, attributes: *const c_char, length: usize, inputs: *const sys::epl_op_tensor,
    input_count: usize, outputs: *const sys::epl_op_tensor, upstream: *const sys::epl_op_tensor, output_count: usize,
    gradients: *const sys::epl_op_tensor,
) -> *mut sys::epl_error {
    guarded(|| {
        (*(userdata as *const O)).gradient(
            &text_of(attributes, length),
            &operands(inputs, input_count, read),
            &operands(outputs, output_count, read),
            &operands(upstream, output_count, read),
            &mut operands(gradients, input_count, write),
        )
    })
}

unsafe extern "C" fn drop_op<O: Op>(userdata: *mut c_void) {
    let op = Box::from_raw(userdata as *mut O);
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(op)));
}

impl Engine {
    /// Gives models that are loaded with this engine from now on an operator.
    pub fn add_op<O: Op>(&self, op: O, options: &OpOptions<'_>) -> Result<()> {
        let userdata = Box::into_raw(Box::new(op)).cast();
        let mut raw = sys::epl_op_options {
            domain: options.domain.as_ptr().cast(),
            domain_length: options.domain.len() as u64,
            name: options.name.as_ptr().cast(),
            name_length: options.name.len() as u64,
            output_count: options.outputs.into(),
            shape: Some(shape::<O>),
            run: Some(run::<O>),
            userdata,
            destroy: Some(drop_op::<O>),
            ..Default::default()
        };
        if O::HAS_GRADIENT {
            raw.gradient = Some(gradient::<O>);
        }
        if !options.sharding.is_empty() {
            (raw.sharding, raw.sharding_length) = (options.sharding.as_ptr().cast(), options.sharding.len() as u64);
        }
        let added = check(unsafe { sys::epl_engine_add_op(self.0.as_ptr(), &raw) });
        if added.is_err() {
            unsafe { drop_op::<O>(userdata) }; // where it fails it is still ours
        }
        added
    }
}
