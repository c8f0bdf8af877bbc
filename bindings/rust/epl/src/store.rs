use crate::engine::Engine;
use crate::error::Result;
use crate::handle::{given, given_text, handle, text_of};
use epl_sys as sys;

handle!(
    /// Where the processes of one job find each other. One process serves it, by a thread of its own.
    Store, epl_store, epl_store_destroy
);
// The header: stores are for any threads.
unsafe impl Send for Store {}
unsafe impl Sync for Store {}

impl Store {
    /// `address` is "HOST:PORT" of this process as the others reach it; port 0: any that is free; empty: for processes of
    /// this host. `secret` is what others must know; empty: one is drawn, which the id has in it.
    pub fn new(engine: &Engine, address: &str, secret: &str) -> Result<Store> {
        let mut options = sys::epl_store_options::default();
        if !address.is_empty() {
            (options.address, options.address_length) = (address.as_ptr().cast(), address.len() as u64);
        }
        if !secret.is_empty() {
            (options.secret, options.secret_length) = (secret.as_ptr().cast(), secret.len() as u64);
        }
        given(|place| unsafe { sys::epl_store_create(engine.0.as_ptr(), &options, place) }).map(Store)
    }
    /// "HOST:PORT" with the port that it has.
    pub fn address(&self) -> String {
        let mut length = 0;
        unsafe { text_of(sys::epl_store_address(self.0.as_ptr(), &mut length), length) }
    }
    /// Address and secret as one text, for `rendezvous` of the other processes.
    pub fn id(&self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_store_id(self.0.as_ptr(), place) })
    }
}
