--- An array of floats that the workers share.

local border = require 'unisono.border'
local handler = require 'unisono.handler'

local ArrayTableHandler = { tick = handler.tick, clock = handler.clock, staleness = handler.staleness }
ArrayTableHandler.__index = ArrayTableHandler

--- Makes an array. Every process calls it, and in the same order as other tables.
-- @param size how many numbers it has
-- @param init_value as many numbers, of which those of worker 0 win, or one number for all; zero without it
-- @param options a table such as {updater = "adam", consistency = "ssp:3", name = "weights", learning_rate = 0.1}
function ArrayTableHandler:new(size, init_value, options)
    handler.check_size(size, 'size')
    local handle = handler.create(init_value, size, options, function(first, chosen, place)
        return border.library.unisono_array_new(size, border.library.UNISONO_F32, first, chosen, place)
    end)
    return setmetatable({ handle = handle, size = size, count = size, num_col = 1 }, self)
end
ArrayTableHandler.New = ArrayTableHandler.new

--- The values: a torch.FloatTensor, or without torch an array with `#` and indices from 1.
function ArrayTableHandler:get()
    return (handler.get(self, nil, self.size))
end

--- Adds data: a tensor, an ffi array or a table of numbers.
-- @param sync true: returns when it is added
-- @param options numbers for the updater, such as {learning_rate = 0.1}
function ArrayTableHandler:add(data, sync, options)
    handler.add(self, data, nil, sync, options)
end

return ArrayTableHandler
