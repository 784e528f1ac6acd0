--- Loads the C library, and converts its errors and handles.

local ffi = require 'ffi'

ffi.cdef(require 'unisono.declarations')

local native = { library = require 'unisono.library' }

--- Raises the library's error, if the status is not 0, at the line that called the binding.
function native.check(status)
    if status ~= 0 then
        native.raise(ffi.string(native.library.unisono_last_error()))
    end
end

--- The prefix of the binding's source names: the folder that contains `unisono/`.
local root = debug.getinfo(1, 'S').source:match '^(.*)unisono/[^/]*$' or '@'

local function is_own(source)
    if source:sub(1, #root) ~= root then return false end
    local folder = source:sub(#root + 1):match '^(%a+)/'
    return folder == 'unisono' or folder == 'multiverso'
end

--- Raises an error at the first line outside the binding.
function native.raise(text)
    local level = 2
    local info = debug.getinfo(level, 'S')
    while info do
        local is_code = info.what == 'Lua' or info.what == 'main'
        if is_code and not is_own(info.source) then error(text, level) end
        level = level + 1
        info = debug.getinfo(level, 'S')
    end
    error(text, 0)
end

--- Wraps a handle, and frees it when it is garbage collected.
function native.handle(number, free)
    return ffi.gc(ffi.new('uint64_t[1]', number), function(handle) free(handle[0]) end)
end

return native
