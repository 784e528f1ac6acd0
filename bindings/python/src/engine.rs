//! A stand-in for the library: a world of one, until the library's own is there.
#![allow(dead_code, unused_variables, missing_docs)]
use std::sync::Arc;
use std::time::Duration;
pub use unisono::{DType, Error, Kind, ReduceOp, Result};
pub type Interrupt = dyn Fn() -> bool + Send + Sync;
#[derive(Default)]
pub struct InitOptions {
    pub timeout: Option<Duration>,
    pub interrupt: Option<Arc<Interrupt>>,
}
pub struct World {
    group: Group,
    hosts: Vec<String>,
}
impl World {
    pub fn init_with(options: InitOptions) -> Result<World> {
        Ok(World { group: Group { members: vec![0] }, hosts: vec!["here".into()] })
    }
    pub fn rank(&self) -> usize {
        0
    }
    pub fn size(&self) -> usize {
        1
    }
    pub fn local_rank(&self) -> usize {
        0
    }
    pub fn local_size(&self) -> usize {
        1
    }
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }
    pub fn transport(&self) -> &'static str {
        "alone"
    }
    pub fn launcher(&self) -> &str {
        "none"
    }
    pub fn group(&self) -> &Group {
        &self.group
    }
    pub fn empty(&self, bytes: usize) -> Result<ArenaBuffer> {
        Ok(ArenaBuffer(vec![0; bytes]))
    }
    pub fn set_locator(&self, locator: Box<dyn Fn() -> Option<String> + Send + Sync>) {}
    pub fn shutdown(self) {}
}
pub struct ArenaBuffer(Vec<u8>);
impl ArenaBuffer {
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut()
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
#[derive(Clone)]
pub struct Group {
    members: Vec<usize>,
}
impl Group {
    pub fn rank(&self) -> usize {
        0
    }
    pub fn size(&self) -> usize {
        1
    }
    pub fn members(&self) -> &[usize] {
        &self.members
    }
    pub fn name(&self) -> &str {
        "world"
    }
    pub fn with_timeout(&self, t: Duration) -> Group {
        self.clone()
    }
    pub fn with_interrupt(&self, t: Arc<Interrupt>) -> Group {
        self.clone()
    }
    pub fn deterministic(&self, yes: bool) -> Group {
        self.clone()
    }
    pub fn subgroup(&self, members: &[usize]) -> Result<Option<Group>> {
        Ok(Some(self.clone()))
    }
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Group>> {
        Ok(color.map(|_| self.clone()))
    }
    pub fn start<R: Send + 'static>(
        &self,
        f: impl FnOnce(&Group) -> Result<R> + Send + 'static,
    ) -> Pending<R> {
        Pending(Some(f(self)))
    }
    pub fn start_beside<R: Send + 'static>(
        &self,
        f: impl FnOnce(&Group) -> Result<R> + Send + 'static,
    ) -> Pending<R> {
        self.start(f)
    }
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(300)
    }
    pub fn raw(&self) -> Raw<'_> {
        Raw(self)
    }
}
pub struct Pending<R>(Option<Result<R>>);
impl<R> Pending<R> {
    pub fn wait(mut self) -> Result<R> {
        self.0.take().unwrap()
    }
    pub fn wait_timeout(&self, t: Duration) -> bool {
        true
    }
    pub fn is_done(&self) -> bool {
        true
    }
}
pub struct Raw<'a>(&'a Group);
impl Raw<'_> {
    pub fn barrier(&self) -> Result<()> {
        Ok(())
    }
    pub fn broadcast(&self, data: &mut [u8], d: DType, root: usize) -> Result<()> {
        Ok(())
    }
    pub fn scatter(&self, i: Option<&[u8]>, c: &[usize], o: &mut [u8], d: DType, root: usize) -> Result<()> {
        o.copy_from_slice(i.unwrap());
        Ok(())
    }
    pub fn gather(&self, i: &[u8], o: Option<&mut [u8]>, c: &[usize], d: DType, root: usize) -> Result<()> {
        o.unwrap().copy_from_slice(i);
        Ok(())
    }
    pub fn all_gather(&self, i: &[u8], o: &mut [u8], c: &[usize], d: DType) -> Result<()> {
        o.copy_from_slice(i);
        Ok(())
    }
    pub fn reduce(&self, data: &mut [u8], d: DType, op: ReduceOp, root: usize) -> Result<()> {
        Ok(())
    }
    pub fn all_reduce(&self, data: &mut [u8], d: DType, op: ReduceOp) -> Result<()> {
        Ok(())
    }
    pub fn reduce_scatter(&self, i: &[u8], o: &mut [u8], c: &[usize], d: DType, op: ReduceOp) -> Result<()> {
        o.copy_from_slice(i);
        Ok(())
    }
    pub fn all_to_all(&self, i: &[u8], s: &[usize], o: &mut [u8], r: &[usize], d: DType) -> Result<()> {
        o.copy_from_slice(i);
        Ok(())
    }
    pub fn send(&self, i: &[u8], d: DType, to: usize, tag: u32) -> Result<()> {
        Ok(())
    }
    pub fn recv(&self, o: &mut [u8], d: DType, from: usize, tag: u32) -> Result<()> {
        Ok(())
    }
}
