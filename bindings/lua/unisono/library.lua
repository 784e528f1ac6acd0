--- Finds the library: at UNISONO_LIBRARY, next to these files, in the output folder of `make lib`, in the `lib` folder of an
--- installation that contains these files, or on the system's path.

local ffi = require 'ffi'

--- Returns the folder of this file, with a trailing slash.
local function here()
    return debug.getinfo(1, 'S').source:match('^@(.*/)') or './'
end

local function exists(path)
    local file = io.open(path, 'rb')
    if file then file:close() end
    return file ~= nil
end

local function find()
    local configured = os.getenv 'UNISONO_LIBRARY'
    if configured and configured ~= '' then return configured end
    -- `make install` puts these files into PREFIX/share/lua/5.1/unisono.
    local folders = { here(), here() .. '../', here() .. '../../../target/release/', here() .. '../../../../lib/' }
    for _, folder in ipairs(folders) do
        local path = folder .. 'libunisono.so'
        if exists(path) then return path end
    end
    for pattern in package.cpath:gmatch('[^;]+') do
        local path = pattern:gsub('%?', 'libunisono')
        if exists(path) then return path end
    end
    return 'unisono'
end

local path = find()
local found, library = pcall(ffi.load, path)
if not found then
    error('unisono: the library ' .. path .. ' cannot be loaded (' .. tostring(library) .. '); build it with `make lib`, '
        .. 'install it with `make install`, or set UNISONO_LIBRARY to its path', 0)
end
return library
