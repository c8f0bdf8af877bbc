use crate::call::Call;
use crate::engine::Engine;
use crate::error::{check, Result};
use crate::handle::{given, given_text, handle, path_text, raw};
use crate::plan::{Entry, Plan};
use crate::tensor::{infos, Info, TensorRef};
use epl_sys as sys;
use std::marker::PhantomData;
use std::path::Path;

handle!(
    /// Batches of a file, in an order, from a position that checkpoints keep.
    Dataset, epl_dataset, epl_dataset_destroy
);
// The header: one caller at a time, from any thread. `&mut self` is one caller.
unsafe impl Send for Dataset {}

/// The tensors of a batch, which the dataset fills anew for the next one.
pub struct Batch<'d> {
    raw: Vec<*const sys::epl_tensor>,
    _dataset: PhantomData<&'d mut Dataset>,
}

impl<'d> Batch<'d> {
    /// The tensor of an input.
    pub fn get(&self, index: usize) -> Option<TensorRef<'_>> {
        self.raw.get(index).map(|&one| TensorRef::of(one))
    }
}

impl<'b> IntoIterator for &'b Batch<'_> {
    type Item = TensorRef<'b>;
    type IntoIter =
        std::iter::Map<std::slice::Iter<'b, *const sys::epl_tensor>, fn(&*const sys::epl_tensor) -> TensorRef<'b>>;
    fn into_iter(self) -> Self::IntoIter {
        self.raw.iter().map(|&one| TensorRef::of(one))
    }
}

impl Dataset {
    /// A file, a folder of files, or several by * and ? in the last part of the path. `options` is a JSON object
    /// (docs/readers.md); empty for defaults.
    pub fn open(engine: &Engine, path: impl AsRef<Path>, options: &str, call: &Call) -> Result<Dataset> {
        let ((path, length), (options, options_length)) = (raw(path_text(path.as_ref())?), raw(options));
        given(|place| unsafe {
            sys::epl_dataset_open(engine.0.as_ptr(), path, length, options, options_length, &call.raw(), place)
        })
        .map(Dataset)
    }
    /// The same where files that the options name may lie anywhere in `folder`, and not only in the folder of the data.
    /// "/" is for options that are your own, and not a client's.
    pub fn open_within(
        engine: &Engine, path: impl AsRef<Path>, folder: impl AsRef<Path>, options: &str, call: &Call,
    ) -> Result<Dataset> {
        let ((path, length), (options, options_length)) = (raw(path_text(path.as_ref())?), raw(options));
        let (folder, folder_length) = raw(path_text(folder.as_ref())?);
        given(|place| unsafe {
            sys::epl_dataset_open_within(
                engine.0.as_ptr(),
                path,
                length,
                folder,
                folder_length,
                options,
                options_length,
                &call.raw(),
                place,
            )
        })
        .map(Dataset)
    }
    /// What a batch has.
    pub fn fields(&self) -> Result<Vec<Info>> {
        infos(unsafe { sys::epl_dataset_field_count(self.0.as_ptr()) }, |index, info| unsafe {
            sys::epl_dataset_field(self.0.as_ptr(), index, info)
        })
    }
    /// Samples of an epoch.
    pub fn samples(&self) -> i64 {
        unsafe { sys::epl_dataset_samples(self.0.as_ptr()) }
    }
    /// Batches of an epoch.
    pub fn batches(&self) -> i64 {
        unsafe { sys::epl_dataset_batches(self.0.as_ptr()) }
    }
    /// Batches given so far, which is where a checkpoint goes on.
    pub fn position(&self) -> i64 {
        unsafe { sys::epl_dataset_position(self.0.as_ptr()) }
    }
    /// Makes the batch of a position the next one.
    pub fn seek(&mut self, position: i64) -> Result<()> {
        check(unsafe { sys::epl_dataset_seek(self.0.as_ptr(), position) })
    }
    /// As JSON, what was read and how.
    pub fn describe(&mut self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_dataset_describe(self.0.as_ptr(), place) })
    }
    /// Gives batches the inputs of an entry of the plan, in its order.
    pub fn bind(&mut self, plan: &Plan, entry: Entry) -> Result<()> {
        check(unsafe { sys::epl_dataset_bind(self.0.as_ptr(), plan.0.as_ptr(), entry.raw()) })
    }
    /// Gives of each batch the samples alone that so many ranks from `first_rank` on read.
    pub fn bind_slice(&mut self, plan: &Plan, entry: Entry, first_rank: u64, ranks: u64) -> Result<()> {
        check(unsafe {
            sys::epl_dataset_bind_slice(self.0.as_ptr(), plan.0.as_ptr(), entry.raw(), first_rank as i64, ranks as i64)
        })
    }
    /// Reads every sample once and looks for integers that the model cannot take.
    pub fn check(&mut self, plan: &Plan, entry: Entry, call: &Call) -> Result<()> {
        check(unsafe { sys::epl_dataset_check(self.0.as_ptr(), plan.0.as_ptr(), entry.raw(), &call.raw()) })
    }
    /// The next batch. After the last one of an epoch the next epoch begins.
    pub fn next_batch(&mut self, call: &Call) -> Result<Batch<'_>> {
        let count = unsafe { sys::epl_dataset_field_count(self.0.as_ptr()) };
        let mut tensors = vec![std::ptr::null(); count as usize];
        check(unsafe { sys::epl_dataset_next(self.0.as_ptr(), &call.raw(), tensors.as_mut_ptr(), tensors.len()) })?;
        Ok(Batch { raw: tensors, _dataset: PhantomData })
    }
}
