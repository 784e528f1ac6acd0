--- A matrix of floats that the workers share.

local border = require 'unisono.border'
local handler = require 'unisono.handler'

local MatrixTableHandler = { tick = handler.tick, clock = handler.clock, staleness = handler.staleness }
MatrixTableHandler.__index = MatrixTableHandler

--- Makes a matrix. Every process calls it, and in the same order as other tables.
-- @param num_row, num_col its shape
-- @param init_value as many numbers, row by row, of which those of worker 0 win, or one number for all; zero without it
-- @param options a table such as {updater = "adam", consistency = "ssp:3", name = "weights", learning_rate = 0.1}
function MatrixTableHandler:new(num_row, num_col, init_value, options)
    handler.check_size(num_row, 'num_row')
    handler.check_size(num_col, 'num_col')
    local count = num_row * num_col
    local handle = handler.create(init_value, count, options, function(first, chosen, place)
        return border.library.unisono_matrix_new(num_row, num_col, border.library.UNISONO_F32, first, chosen, place)
    end)
    return setmetatable({ handle = handle, num_row = num_row, num_col = num_col, count = count }, self)
end
MatrixTableHandler.New = MatrixTableHandler.new

--- The values, or those of some rows: a torch.FloatTensor with two axes, or without torch rows with `#` and indices from 1.
-- @param row_ids ids that count from 0: a table, an ffi array or a tensor; all rows without it
function MatrixTableHandler:get(row_ids)
    return (handler.get(self, row_ids, self.num_row, self.num_col))
end

--- Adds data, row by row: a tensor, an ffi array or a table of numbers, which may hold a table for each row.
-- @param row_ids the rows to add to, counted from 0; all without it
-- @param sync true: returns when it is added
-- @param options numbers for the updater, such as {learning_rate = 0.1}
function MatrixTableHandler:add(data, row_ids, sync, options)
    handler.add(self, data, row_ids, sync, options)
end

return MatrixTableHandler
