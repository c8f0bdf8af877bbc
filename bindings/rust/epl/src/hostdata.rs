//! Data that the host gives when it is asked, and data that it pushes.
use crate::call::Call;
use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::error::{check, guarded, Error, Result};
use crate::handle::{given, handle, raw};
use crate::session::handles;
use crate::tensor::{DType, Element, TensorRef};
use epl_sys as sys;
use std::ffi::c_void;

/// Gives samples of the host's own: rows of a database, say. Functions of the same form are readers.
///
/// It is called by one thread at a time, one of the library's own where the dataset reads ahead: hence `Send`.
pub trait SampleReader: Send + 'static {
    /// Writes one field of these samples to `target`, one behind the other, in the machine's order of bytes;
    /// [`elements_mut`] shows `target` as numbers. An error is that of the call that wants the batch; a panic is one of
    /// [`Code::INTERNAL`](crate::Code::INTERNAL).
    fn read(&mut self, field: usize, samples: &[i64], target: &mut [u8]) -> Result<()>;
}

impl<F: FnMut(usize, &[i64], &mut [u8]) -> Result<()> + Send + 'static> SampleReader for F {
    fn read(&mut self, field: usize, samples: &[i64], target: &mut [u8]) -> Result<()> {
        self(field, samples, target)
    }
}

/// Bytes that the library lends, as the numbers that they are. Panics where they are not aligned for them.
pub fn elements_mut<T: Element>(bytes: &mut [u8]) -> &mut [T] {
    // Every bit pattern is a value of an Element.
    let (before, elements, behind) = unsafe { bytes.align_to_mut() };
    assert!(before.is_empty() && behind.is_empty(), "the bytes are no full elements of {:?}", T::DTYPE);
    elements
}

unsafe extern "C" fn read(
    userdata: *mut c_void, field: i32, samples: *const i64, count: usize, target: *mut c_void, bytes: usize,
) -> *mut sys::epl_error {
    guarded(|| {
        let reader = &mut *(userdata as *mut Box<dyn SampleReader>);
        let samples = if count == 0 { &[] } else { std::slice::from_raw_parts(samples, count) };
        let target = if bytes == 0 { &mut [] } else { std::slice::from_raw_parts_mut(target.cast::<u8>(), bytes) };
        reader.read(field as usize, samples, target)
    })
}

unsafe extern "C" fn drop_reader(userdata: *mut c_void) {
    let reader = Box::from_raw(userdata as *mut Box<dyn SampleReader>);
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(reader)));
}

/// Name, type and shape of a field that the host gives.
pub type Field<'f> = (&'f str, DType, &'f [i64]);

fn raw_fields(fields: &[Field<'_>]) -> Result<Vec<sys::epl_tensor_info>> {
    fields
        .iter()
        .map(|(name, dtype, dims)| {
            let mut info = sys::epl_tensor_info::default();
            let place = info.dims.get_mut(..dims.len());
            place.ok_or_else(|| Error::invalid(format!("{name} has too many dimensions")))?.copy_from_slice(dims);
            (info.name, info.name_length) = (name.as_ptr().cast(), name.len() as u64);
            (info.dtype, info.ndim) = (dtype.0, dims.len() as i32);
            Ok(info)
        })
        .collect()
}

impl Dataset {
    /// Samples that `reader` gives when it is asked for them. `fields` are those of a sample; of a full batch where the
    /// option "batch" is 0. `samples`: how many there are; none: nobody knows, and `reader` gives
    /// [`Code::NOT_FOUND`](crate::Code::NOT_FOUND) for one that is not there. Options are those of [`Dataset::open`] that
    /// no reader of files declares.
    pub fn of_reader(
        engine: &Engine, fields: &[Field<'_>], samples: Option<u64>, reader: impl SampleReader, options: &str,
    ) -> Result<Dataset> {
        let fields = raw_fields(fields)?;
        let samples = samples.map_or(-1, |one| i64::try_from(one).unwrap_or(i64::MAX));
        let (options, length) = raw(options);
        let reader: Box<dyn SampleReader> = Box::new(reader);
        let userdata = Box::into_raw(Box::new(reader)).cast();
        let made = given(|place| unsafe {
            sys::epl_dataset_create(
                engine.0.as_ptr(),
                fields.as_ptr(),
                fields.len(),
                samples,
                Some(read),
                userdata,
                Some(drop_reader),
                options,
                length,
                place,
            )
        });
        if made.is_err() {
            unsafe { drop_reader(userdata) }; // where it fails they are still ours
        }
        Ok(Dataset(made?))
    }
}

handle!(
    /// Takes batches that the host pushes when it has them; its [`Feed::dataset`] gives them. Any threads may push. A feed
    /// that is dropped before it was finished is an error to who waits for a batch.
    Feed, epl_feed, epl_feed_destroy
);
// The header: feeds are for any threads.
unsafe impl Send for Feed {}
unsafe impl Sync for Feed {}

impl Feed {
    /// `fields` are those of a batch, and `capacity` batches wait at most.
    pub fn new(engine: &Engine, fields: &[Field<'_>], capacity: u32) -> Result<Feed> {
        let fields = raw_fields(fields)?;
        given(|place| unsafe {
            sys::epl_feed_create(engine.0.as_ptr(), fields.as_ptr(), fields.len(), capacity.into(), place)
        })
        .map(Feed)
    }
    /// Where the batches come out; a feed has one.
    pub fn dataset(&self) -> Result<Dataset> {
        given(|place| unsafe { sys::epl_dataset_of_feed(self.0.as_ptr(), place) }).map(Dataset)
    }
    /// Copies a batch, a tensor for each field, and waits while there is no room: that is the back-pressure. Where `call`
    /// ends the wait nothing was pushed.
    pub fn push<'t, T: Into<TensorRef<'t>>>(&self, batch: impl IntoIterator<Item = T>, call: &Call) -> Result<()> {
        let batch = handles(batch);
        check(unsafe { sys::epl_feed_push(self.0.as_ptr(), batch.as_ptr(), batch.len(), &call.raw()) })
    }
    /// No batch follows: when those that wait have been taken, the dataset gives
    /// [`Code::NOT_FOUND`](crate::Code::NOT_FOUND).
    pub fn finish(&self) -> Result<()> {
        check(unsafe { sys::epl_feed_finish(self.0.as_ptr()) })
    }
}
