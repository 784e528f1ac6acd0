//! Typed arrays and matrices: the API for Rust programs.

use std::marker::PhantomData;

use crate::error::Result;
use crate::memory::TableElement;
use crate::tables::{AddOptions, Rows, Table, TableOptions, Tables};
use crate::world::Pending;

macro_rules! typed_table {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name<T> {
            table: Table,
            element: PhantomData<fn() -> T>,
        }

        impl<T: TableElement> $name<T> {
            /// The untyped table.
            pub fn table(&self) -> &Table {
                &self.table
            }

            /// Copies all values into `out`.
            pub fn get(&self, out: &mut [T]) -> Result<()> {
                self.table.get(Rows::All, bytemuck::cast_slice_mut(out))
            }

            /// Adds `delta` to all values, by the table's updater.
            pub fn add(&self, delta: &[T]) -> Result<()> {
                self.add_with(delta, &AddOptions::default())
            }

            /// As `add`, with options for the updater.
            pub fn add_with(&self, delta: &[T], options: &AddOptions) -> Result<()> {
                self.table.add(Rows::All, bytemuck::cast_slice(delta), options)
            }

            /// Begins this worker's next step; see [`Table::tick`].
            pub fn tick(&self) -> Result<()> {
                self.table.tick()
            }

            /// Number of steps this worker has made; see [`Table::clock`].
            pub fn clock(&self) -> Result<u64> {
                self.table.clock()
            }

            /// Declares that this worker makes no more calls on this table; see [`Table::finish`].
            pub fn finish(&self) -> Result<()> {
                self.table.finish()
            }

            /// Staleness of the values that gets returned; see [`Table::staleness`].
            pub fn staleness(&self) -> Vec<u64> {
                self.table.staleness()
            }
        }
    };
}

macro_rules! by_rows {
    ($name:ident) => {
        impl<T: TableElement> $name<T> {
            /// Copies these rows into `out`, one after the other.
            pub fn get_rows(&self, rows: &[i64], out: &mut [T]) -> Result<()> {
                self.table.get(Rows::List(rows), bytemuck::cast_slice_mut(out))
            }

            /// Copies these rows into separate buffers.
            pub fn get_separate(&self, rows: &[i64], out: &mut [&mut [T]]) -> Result<()> {
                let width = self.table.cols();
                let mut values = vec![T::zeroed(); rows.len() * width];
                self.check_buffers("get", out.iter().map(|row| row.len()), rows.len())?;
                self.get_rows(rows, &mut values)?;
                out.iter_mut()
                    .zip(values.chunks_exact(width))
                    .for_each(|(out, row)| out.copy_from_slice(row));
                Ok(())
            }

            /// Adds a row of `delta` to each of these rows. [`TableOptions::repeats`] is what happens to a row
            /// that is listed more than once.
            pub fn add_rows(&self, rows: &[i64], delta: &[T], options: &AddOptions) -> Result<()> {
                self.table.add(Rows::List(rows), bytemuck::cast_slice(delta), options)
            }

            /// Adds each buffer to its row.
            pub fn add_separate(&self, rows: &[i64], delta: &[&[T]], options: &AddOptions) -> Result<()> {
                self.check_buffers("add", delta.iter().map(|row| row.len()), rows.len())?;
                self.add_rows(rows, &delta.concat(), options)
            }

            fn check_buffers(
                &self,
                operation: &str,
                mut lengths: impl ExactSizeIterator<Item = usize>,
                rows: usize,
            ) -> Result<()> {
                let (width, count) = (self.table.cols(), lengths.len());
                let received = match lengths.find(|&length| length != width) {
                    Some(length) => format!("one of {length} elements"),
                    None if count != rows => format!("{count} of them"),
                    None => return Ok(()),
                };
                let expected = format!("{rows} buffers of {width} elements");
                Err(crate::Error::usage(operation, expected, received, "pass a buffer for each row"))
            }

            /// Fetches rows in the background.
            pub fn start_get_rows(&self, rows: Vec<i64>) -> Pending<RowValues<T>> {
                let out = RowValues(vec![T::zeroed(); rows.len() * self.table.cols()]);
                self.table.start_get(Some(rows), out)
            }
        }
    };
}

/// Values fetched in the background.
pub struct RowValues<T>(pub Vec<T>);

impl<T: TableElement> AsMut<[u8]> for RowValues<T> {
    fn as_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

typed_table! {
    /// An array shared by the workers.
    ///
    /// ```
    /// use unisono::tables::{ArrayTable, Role, TableOptions, Tables};
    /// # let world = unisono::World::threads(1)?.remove(0);
    /// let tables = Tables::join(&world, Role::Both)?;
    /// let table = ArrayTable::<f64>::create(&tables, 2, Some(&[1.0, 2.0]), TableOptions::default())?;
    /// table.add(&[10.0, 20.0])?;
    /// let mut values = [0.0; 2];
    /// table.get(&mut values)?;
    /// assert_eq!(values, [11.0, 22.0]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ArrayTable
}

typed_table! {
    /// A matrix shared by the workers, distributed by rows.
    ///
    /// ```
    /// use unisono::tables::{MatrixTable, Role, TableOptions, Tables};
    /// # let world = unisono::World::threads(1)?.remove(0);
    /// let tables = Tables::join(&world, Role::Both)?;
    /// let table = MatrixTable::<f32>::create(&tables, (100, 2), None, TableOptions::default())?;
    /// table.add_rows(&[7, 9, 7], &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0], &Default::default())?;
    /// let mut values = [0.0; 4];
    /// table.get_rows(&[9, 7], &mut values)?;
    /// assert_eq!(values, [2.0, 2.0, 4.0, 4.0]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    MatrixTable
}

typed_table! {
    /// A matrix whose gets return only the rows that changed since this worker's last one.
    ///
    /// ```
    /// use unisono::tables::{Role, SparseMatrixTable, TableOptions, Tables};
    /// # let world = unisono::World::threads(1)?.remove(0);
    /// let tables = Tables::join(&world, Role::Both)?;
    /// let table = SparseMatrixTable::<f32>::create(&tables, (3, 1), None, false, TableOptions::default())?;
    /// let mut values = [0.0; 3];
    /// assert_eq!(table.get_changed(0, &mut values)?, [0, 1, 2]); // the first time, everything
    /// table.add_rows(&[1], &[5.0], &Default::default())?;
    /// assert_eq!(table.get_changed(0, &mut values)?, [1]);
    /// assert_eq!(values, [0.0, 5.0, 0.0]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    SparseMatrixTable
}

by_rows!(MatrixTable);
by_rows!(SparseMatrixTable);

impl<T: TableElement> ArrayTable<T> {
    /// Creates the table. Collective. If worker 0 passes values, they initialize the table.
    pub fn create(
        tables: &Tables,
        size: usize,
        master: Option<&[T]>,
        options: TableOptions,
    ) -> Result<ArrayTable<T>> {
        let table = Table::array(tables, size, T::DTYPE, master.map(bytemuck::cast_slice), options)?;
        Ok(ArrayTable { table, element: PhantomData })
    }
}

impl<T: TableElement> MatrixTable<T> {
    /// Creates a table of (rows, columns). Collective. If worker 0 passes values, they initialize the table.
    pub fn create(
        tables: &Tables,
        shape: (usize, usize),
        master: Option<&[T]>,
        options: TableOptions,
    ) -> Result<MatrixTable<T>> {
        let table = Table::matrix(tables, shape, T::DTYPE, master.map(bytemuck::cast_slice), options)?;
        Ok(MatrixTable { table, element: PhantomData })
    }
}

impl<T: TableElement> SparseMatrixTable<T> {
    /// Creates a table of (rows, columns); a pipelined one tracks two views per worker. Collective.
    pub fn create(
        tables: &Tables,
        shape: (usize, usize),
        master: Option<&[T]>,
        pipelined: bool,
        options: TableOptions,
    ) -> Result<SparseMatrixTable<T>> {
        let master = master.map(bytemuck::cast_slice);
        let table = Table::sparse_matrix(tables, shape, T::DTYPE, master, pipelined, options)?;
        Ok(SparseMatrixTable { table, element: PhantomData })
    }

    /// Fetches the rows that changed since this worker's last call for the same buffer; returns their numbers.
    pub fn get_changed(&self, buffer: usize, out: &mut [T]) -> Result<Vec<i64>> {
        self.table.get_changed(buffer, Rows::All, bytemuck::cast_slice_mut(out))
    }
}
