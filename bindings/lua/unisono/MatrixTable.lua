--- A matrix of floats shared by all workers.

local native = require 'unisono.native'
local shared = require 'unisono.shared'

local MatrixTable = shared.class()

--- Creates a matrix. All processes create the same tables in the same order.
-- @param rows, cols its shape
-- @param init rows * cols numbers, row by row (worker 0's are used), or one number for all elements; zero by default
-- @param options a table such as {updater = "adam", consistency = "ssp:3", name = "weights", lr = 0.1}
function MatrixTable:new(rows, cols, init, options)
    shared.check_size(rows, 'rows')
    shared.check_size(cols, 'cols')
    local count = rows * cols
    local handle = shared.create(init, count, options, function(first, chosen, place)
        return native.library.unisono_matrix_new(rows, cols, native.library.UNISONO_F32, first, chosen, place)
    end)
    return setmetatable({ handle = handle, rows = rows, cols = cols, count = count }, self)
end

--- Returns all values, or those of some rows: a torch.FloatTensor with two axes, or without torch rows with `#` and 1-based indices.
-- @param rows ids that count from 0: a table, an ffi array or a tensor; all rows by default
function MatrixTable:get(rows)
    return (shared.get(self, rows, self.rows, self.cols))
end

--- Applies delta to rows, through the matrix's updater.
-- @param delta row by row: a tensor, an ffi array or a table of numbers, which may hold a table for each row
-- @param rows the ids of the rows, counted from 0; all rows by default
-- @param wait true: returns when the change is applied
-- @param options numbers for the updater, such as {lr = 0.1}
function MatrixTable:add(delta, rows, wait, options)
    shared.add(self, delta, rows, wait, options)
end

return MatrixTable
