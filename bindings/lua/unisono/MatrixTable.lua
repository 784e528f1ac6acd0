--- A matrix of floats that the workers share.

local border = require 'unisono.border'
local shared = require 'unisono.shared'

local MatrixTable = shared.class()

--- Makes a matrix. Every process calls it, and in the same order as other tables.
-- @param rows, cols its shape
-- @param init as many numbers, row by row, of which those of worker 0 win, or one number for all; zero without it
-- @param options a table such as {updater = "adam", consistency = "ssp:3", name = "weights", learning_rate = 0.1}
function MatrixTable:new(rows, cols, init, options)
    shared.check_size(rows, 'rows')
    shared.check_size(cols, 'cols')
    local count = rows * cols
    local handle = shared.create(init, count, options, function(first, chosen, place)
        return border.library.unisono_matrix_new(rows, cols, border.library.UNISONO_F32, first, chosen, place)
    end)
    return setmetatable({ handle = handle, rows = rows, cols = cols, count = count }, self)
end

--- The values, or those of some rows: a torch.FloatTensor with two axes, or without torch rows with `#` and indices from 1.
-- @param rows ids that count from 0: a table, an ffi array or a tensor; all rows without it
function MatrixTable:get(rows)
    return (shared.get(self, rows, self.rows, self.cols))
end

--- Changes rows by delta, as the matrix's updater says.
-- @param delta row by row: a tensor, an ffi array or a table of numbers, which may hold a table for each row
-- @param rows the ids of the rows, counted from 0; all rows without it
-- @param wait true: returns when the change is made
-- @param options numbers for the updater, such as {learning_rate = 0.1}
function MatrixTable:add(delta, rows, wait, options)
    shared.add(self, delta, rows, wait, options)
end

return MatrixTable
