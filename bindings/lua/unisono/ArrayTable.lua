--- An array of floats shared by all workers.

local native = require 'unisono.native'
local shared = require 'unisono.shared'

local ArrayTable = shared.class()

--- Creates an array. All processes create the same tables in the same order.
-- @param size the number of elements
-- @param init that many numbers (worker 0's are used), or one number for all elements; zero by default
-- @param options a table such as {updater = "adam", consistency = "ssp:3", name = "weights", lr = 0.1}
function ArrayTable:new(size, init, options)
    shared.check_size(size, 'size')
    local handle = shared.create(init, size, options, function(first, chosen, place)
        return native.library.unisono_array_new(size, native.library.UNISONO_F32, first, chosen, place)
    end)
    return setmetatable({ handle = handle, size = size, count = size, cols = 1 }, self)
end

--- Returns the values: a torch.FloatTensor, or without torch an array with `#` and 1-based indices.
function ArrayTable:get()
    return (shared.get(self, nil, self.size))
end

--- Applies delta through the array's updater.
-- @param delta a tensor, an ffi array or a table of numbers
-- @param wait true: returns when the change is applied
-- @param options numbers for the updater, such as {lr = 0.1}
function ArrayTable:add(delta, wait, options)
    shared.add(self, delta, nil, wait, options)
end

return ArrayTable
