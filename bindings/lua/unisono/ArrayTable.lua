--- An array of floats that the workers share.

local border = require 'unisono.border'
local shared = require 'unisono.shared'

local ArrayTable = shared.class()

--- Makes an array. Every process calls it, and in the same order as other tables.
-- @param size how many numbers it has
-- @param init as many numbers, of which those of worker 0 win, or one number for all; zero without it
-- @param options a table such as {updater = "adam", consistency = "ssp:3", name = "weights", learning_rate = 0.1}
function ArrayTable:new(size, init, options)
    shared.check_size(size, 'size')
    local handle = shared.create(init, size, options, function(first, chosen, place)
        return border.library.unisono_array_new(size, border.library.UNISONO_F32, first, chosen, place)
    end)
    return setmetatable({ handle = handle, size = size, count = size, cols = 1 }, self)
end

--- The values: a torch.FloatTensor, or without torch an array with `#` and indices from 1.
function ArrayTable:get()
    return (shared.get(self, nil, self.size))
end

--- Changes the array by delta, as its updater says.
-- @param delta a tensor, an ffi array or a table of numbers
-- @param wait true: returns when the change is made
-- @param options numbers for the updater, such as {learning_rate = 0.1}
function ArrayTable:add(delta, wait, options)
    shared.add(self, delta, nil, wait, options)
end

return ArrayTable
